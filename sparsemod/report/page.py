"""The HTML page of a run: one file that loads nothing, with its styles, its script and its data inside.

The page's policy allows the script and the style by their hashes and nothing else, so even markup that found
a way into it could neither run nor ask a server for anything. Text reaches the page through the template,
which escapes it, or as JSON, which the script only ever turns into text nodes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from sparsemod.candidate import OBJECTIVES, Arm, Resources, Status
from sparsemod.errors import ConfigError
from sparsemod.measure.layer_table import LayerCost
from sparsemod.measure.targets import TARGETS, limits
from sparsemod.report.hypervolume import progress, reference_text, stage_summaries
from sparsemod.report.run_data import RunData
from sparsemod.space.parameters import Range, Tunable

__all__ = ["page_data", "render_page"]

SCRIPTS = (
    "core.js",
    "scales.js",
    "front.js",
    "details.js",
    "parallel.js",
    "progress.js",
    "table.js",
    "controls.js",
)


def render_page(run: RunData) -> str:
    """Return the page of a run.

    Raises:
        ConfigError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise ConfigError("the page needs jinja2: pip install 'sparsemod[report]'") from None
    script, style = "\n".join(_asset(name) for name in SCRIPTS), _asset("style.css")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    values = progress(run)
    page: str = environment.from_string(_asset("page.html.j2")).render(
        run=run,
        policy=_policy(script, style),
        script=script,
        style=style,
        data=jinja2.utils.htmlsafe_json_dumps(page_data(run, values), dumps=_compact),
        stages=stage_summaries(run, values),
        reference=reference_text(run.objectives),
        failures=_failures(run.evaluated),
        configuration=_flat(run.configuration),
        versions=_flat(_mapping(run.record.get("versions"))),
        machine={k: _shown(run.record[k]) for k in ("machine", "cpus", "seed") if k in run.record},
        recipe=run.record.get("recipe"),
        n_pending=sum(arm.status is Status.PENDING for arm in run.arms),
        n_failed=sum(arm.status is Status.FAILED for arm in run.arms),
    )
    return page


def page_data(run: RunData, values: Sequence[float]) -> dict[str, Any]:
    """Return what the page's script works on, as plain JSON values without NaN.

    Args:
        run: The run.
        values: The hypervolume after each evaluated arm.
    """
    runtime = run.configuration.get("runtime")
    runtime = runtime if runtime in ("c", "tflite-micro") else "c"
    return {
        "name": run.name,
        "objectives": list(run.objectives),
        "target": str(run.record.get("target", "")),
        "clockHz": _number(run.record.get("clock_hz")),
        "runtime": runtime,
        "limits": {name: run.constraints.limits().get(name) for name in OBJECTIVES[1:]},
        "boards": _boards(runtime),
        "parameters": [_parameter(p) for p in run.parameters],
        "arms": [_arm(arm, arm.name in run.front) for arm in run.arms],
        "layers": {arm: [_layer(layer) for layer in layers] for arm, layers in run.layers.items()},
        "hypervolume": [_number(v) for v in values],
    }


def _arm(arm: Arm, on_front: bool) -> dict[str, Any]:
    evaluation = arm.evaluation
    shown: dict[str, Any] = {
        "name": arm.name,
        "stage": arm.candidate.stage,
        "origin": arm.candidate.origin,
        "parent": arm.candidate.parent,
        "status": str(arm.status),
        "round": arm.round,
        "epochs": arm.epochs,
        "front": on_front,
        "parameters": {k: _json_value(v) for k, v in arm.candidate.parametrization.items()},
    }
    if evaluation is not None:
        shown |= {
            "reason": evaluation.reason,
            "floatError": _number(evaluation.float_error),
            "testError": _number(evaluation.test_error),
            "integerError": _number(evaluation.integer_error),
            "bestEpoch": evaluation.best_epoch,
            "sparsity": _number(evaluation.sparsity),
            "seconds": _number(evaluation.seconds),
            "values": {name: _number(evaluation.objective(name)) for name in OBJECTIVES},
            "resources": _resources(evaluation.resources),
        }
    return shown


def _resources(resources: Resources | None) -> dict[str, Any] | None:
    return None if resources is None else {k: _number(v) for k, v in resources.as_dict().items()}


def _layer(layer: LayerCost) -> dict[str, Any]:
    return {
        "module": layer.module,
        "kind": layer.kind,
        "activation": layer.activation,
        "inputs": layer.input_shapes,
        "outputs": layer.output_shapes,
        "weights": layer.weight_shapes,
        "macs": layer.n_macs,
        "parameters": layer.n_parameters,
        "nonzero": layer.n_nonzero,
        "weightBytes": layer.weight_bytes,
        "outputBytes": layer.output_bytes,
        "seconds": layer.latency_seconds,
    }


def _boards(runtime: str) -> list[dict[str, Any]]:
    return [
        {
            "name": target.name,
            "core": target.core,
            "clockHz": target.clock_hz,
            "flash": target.flash_bytes,
            "ram": target.ram_bytes,
            **{k: limits(target, runtime).limits().get(k) for k in ("model_size", "working_memory")},
        }
        for target in TARGETS.values()
        if target.flash_bytes is not None
    ]


def _parameter(parameter: Tunable) -> dict[str, Any]:
    if isinstance(parameter, Range):
        bounds = {"lower": _json_value(parameter.lower), "upper": _json_value(parameter.upper)}
        return {"name": parameter.name, "log": parameter.scale == "log", **bounds}
    return {"name": parameter.name, "values": [_json_value(v) for v in parameter.values]}


def _failures(arms: Sequence[Arm]) -> list[tuple[str, list[str]]]:
    """Group the failed arms by their reason, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for arm in arms:
        if arm.evaluation is not None and arm.status is Status.FAILED:
            groups.setdefault(arm.evaluation.reason or "no reason was recorded", []).append(arm.name)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested settings as one level of texts, ``constraints.latency``; what is not set is left out."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = _shown(value)
    return flat


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> Any:
    """Return a finite number, or None for everything else, since JSON has no NaN."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if usable else None


def _json_value(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _compact(value: Any, **options: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, **options)


def _asset(name: str) -> str:
    return files("sparsemod.report").joinpath("page", name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Return a content security policy that allows this script and this style, and no request at all."""
    sources = {
        "script-src": _hash(script),
        "style-src": _hash(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(["default-src 'none'", *(f"{key} {value}" for key, value in sources.items())])


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
