"""Results folders with made-up arms, as a run would leave them; nothing is trained."""

import math

import numpy as np
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace

from sparsemod.candidate import Candidate, Constraints, Evaluation, Resources, Status
from sparsemod.measure.layer_table import LayerCost, dump_layers
from sparsemod.search.experiment import Experiment
from sparsemod.store import Store

INT, FLOAT, STRING = ParameterType.INT, ParameterType.FLOAT, ParameterType.STRING
ALL = ("error", "model_size", "working_memory", "latency")


def space(n_widths=4):
    return SearchSpace(
        parameters=[
            RangeParameter("learning_rate", FLOAT, 1e-4, 1e-1, log_scale=True),
            FixedParameter("learning_gamma", FLOAT, 0.5),
            FixedParameter("learning_step", FLOAT, 1.0),
            FixedParameter("batch_size", INT, 32),
            RangeParameter("prune_threshold", FLOAT, 0.1, 0.9),
            ChoiceParameter("kind", STRING, ["conv", "separable"], is_ordered=False, sort_values=False),
            *(RangeParameter(f"width_{i}", INT, 1, 64) for i in range(n_widths)),
        ]
    )


def resources(size=1000, ram=2000, seconds=0.01):
    return Resources(size, ram, seconds, 2 * size, size, 50 * size, size, 2 * size, ram, ram)


def completed(error=0.1, size=1000, ram=2000, seconds=0.01, test_error=None):
    return Evaluation(
        Status.COMPLETED,
        error=error,
        float_error=error / 2,
        test_error=test_error,
        resources=resources(size, ram, seconds),
        n_epochs=5,
        best_epoch=4,
        sparsity=0.25,
        seconds=1.5,
    )


def failed(reason="Net.forward raised RuntimeError: too wide"):
    return Evaluation(Status.FAILED, reason)


def layers(size=1000, seconds=0.01):
    """Two layers that add up to a size and a time."""
    dense = ("classifier", "fully_connected", "", ((1, 6, 6, 8),), ((1, 10),), ((10, 288),))
    conv = ("features.0", "conv_2d", "relu", ((1, 8, 8, 1),), ((1, 6, 6, 8),), ((8, 3, 3, 1),))
    return (
        LayerCost(*conv, 2592, 72, 60, size // 4, 288, seconds / 4),
        LayerCost(*dense, 2880, 2890, 1000, size - size // 4, 10, seconds * 3 / 4),
    )


def random_evaluations(n, seed=0):
    """Evaluations on a coarse grid, so that there are ties and copies, zero errors and a few failures."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        if i % 11 == 5:
            found.append(failed(f"Net.forward raised RuntimeError: {i % 3} is too many"))
            continue
        size = int(2 ** rng.integers(6, 16))
        ram = int(64 * rng.integers(1, 60))
        error = round(max(0.0, 0.9 / math.log2(size) + rng.normal(0, 0.08)), 2)
        found.append(completed(error, size, ram, float(rng.integers(1, 40)) / 1000, error + 0.01))
    return found


def write_run(
    root, evaluations, *, objectives=ALL, limits=None, record=None, n_widths=4, origin=None, name="made"
):
    """Write the folder of a run whose arms came out as given; None is an arm that is pending.

    `record` is added to `run.json`; False leaves that file out.
    """
    rng = np.random.default_rng(1)
    experiment = Experiment(name, space(n_widths), objectives)
    n = len(evaluations)
    for i, evaluation in enumerate(evaluations):
        stage = 1 + (3 * i) // max(n, 1)
        values = {
            "learning_rate": float(10 ** rng.uniform(-4, -1)),
            "learning_gamma": 0.5,
            "learning_step": 1.0,
            "batch_size": 32,
            "prune_threshold": float(rng.uniform(0.1, 0.9)),
            "kind": ["conv", "separable"][int(rng.integers(2))],
            **{f"width_{k}": int(rng.integers(1, 65)) for k in range(n_widths)},
        }
        candidate = Candidate(values, stage, origin or ("sobol", "bayes", "morph:width")[stage - 1])
        (arm,) = experiment.add([candidate], round=i, epochs=5, seeds=[i])
        if evaluation is not None:
            experiment.complete(arm.name, evaluation)
    constraints = Constraints(**(limits or {}))
    with Store(root, name) as store:
        for arm in experiment.front(constraints):
            found = arm.evaluation.resources
            table = layers(found.model_size_bytes, found.latency_seconds)
            store.put_layers(arm.name, dump_layers(table))
        store.save(experiment.to_json(), experiment.to_csv(constraints))
        if record is not False:
            configuration = {
                "runtime": "c",
                "seed": 3,
                "constraints": dict.fromkeys(ALL[1:]) | (limits or {}),
            }
            store.write_run(
                {
                    "target": "STM32F446",
                    "clock_hz": 180e6,
                    "seed": 3,
                    "versions": {"python": "3.11.7"},
                    "configuration": configuration,
                    "seconds": {"sobol": 12.5},
                    **(record or {}),
                }
            )
    return experiment
