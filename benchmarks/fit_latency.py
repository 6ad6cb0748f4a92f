"""Fit what the parts of the C bundle's kernels take on each core: writes `sparsemod/measure/c_costs.py`.

    python benchmarks/fit_latency.py [--counts FILE]

A few hundred small networks of one kind of operator, odd shapes and pruned weights included, are compiled as
bundles with -O2 and counted on an emulated Cortex-M0+, M3 and M4. The costs are those that are not negative
and have the least sum of squared relative errors. Prints the errors by kind of operator. FILE keeps the
counts, which take a quarter of an hour, so that the fit can be done again without them.

    python benchmarks/fit_latency.py --cmsis PATH

fits CMSIS-NN's convolutions, depthwise and fully connected layers to single operators that were counted, and
prints the coefficients (of `sparsemod/measure/kernels.py`) and their errors. PATH is a JSON file, core by
name by ``cmsis``; without it ../shared/reference/cortex-m-instructions.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "measure"))
sys.path.insert(0, str(Path(__file__).parent))

from counted_bundles import CORES, KINDS, count, random_network, single

from sparsemod.errors import CandidateError, UnsupportedOperatorError
from sparsemod.export.emulation import missing
from sparsemod.measure.c_work import c_work
from sparsemod.measure.kernels import DSP

ROOT = Path(__file__).parents[1]
COSTS = ROOT / "sparsemod" / "measure" / "c_costs.py"
CMSIS = ROOT / ".." / "shared" / "reference" / "cortex-m-instructions.json"
SPARSITIES = (0.4, 0.6, 0.8, 0.9, 0.95)
N_WHOLE = 16  # random networks beside the single operators; the ones they are tested on have other seeds

HEAD = '''"""Instructions of the parts of the C bundle's kernels, written by `benchmarks/fit_latency.py`.

Keys: the core and what `sparsemod.measure.c_work.c_work` counts. Counted on emulated cores; GCC, -O2.
"""

from __future__ import annotations

__all__ = ["C_COSTS"]

C_COSTS: dict[str, dict[str, float]] = {
'''


def cases() -> list[tuple[str, int, float]]:
    """Return kind, number and sparsity of what is counted."""
    found = [(kind, i, 0.0) for kind, (n, _, _) in KINDS.items() for i in range(n)]
    for kind, (n, also_pruned, _) in KINDS.items():
        if also_pruned:
            found += [(kind, 1000 + i, SPARSITIES[i % len(SPARSITIES)]) for i in range(n)]
    return found + [("whole", 1000 + i, (0.0, 0.0, 0.8, 0.9)[i // 4]) for i in range(N_WHOLE)]


def counted(case: tuple[str, int, float]) -> dict[str, Any] | None:
    """Return a case and its instructions on each core; None where it cannot run or has no kernel."""
    torch.set_num_threads(1)
    kind, number, sparsity = case
    net, samples = random_network(number, number, sparsity) if kind == "whole" else single(*case)
    try:
        _, counts = count(net, samples)
    except (UnsupportedOperatorError, CandidateError):
        return None
    return {"case": case, "counts": counts}


def work_of(case: tuple[str, int, float], dsp: bool) -> dict[str, float]:
    """Return the executions of a case's network by name."""
    from sparsemod.measure.operators import lower

    kind, number, sparsity = case
    net, samples = random_network(number, number, sparsity) if kind == "whole" else single(*case)
    graph = lower(net, samples[:1])
    total: dict[str, float] = {}
    for operator in graph.operators:
        for name, n in c_work(graph, operator, dsp=dsp).items():
            total[name] = total.get(name, 0.0) + n
    return total


def fit(works: list[dict[str, float]], counts: list[int]) -> tuple[dict[str, float], np.ndarray]:
    """Return costs by name, and the relative error of each network."""
    names = sorted({name for work in works for name in work})
    matrix = np.array(
        [[work.get(name, 0.0) / n for name in names] for work, n in zip(works, counts, strict=True)]
    )
    scale = np.maximum(np.abs(matrix).max(0), 1e-12)
    solution, _ = nnls(matrix / scale, np.ones(len(counts)), maxiter=100 * len(names))
    return dict(zip(names, (solution / scale).round(3).tolist(), strict=True)), matrix @ (
        solution / scale
    ) - 1


def fit_bundles(file: Path | None) -> None:
    """Count, fit, write the costs, print the errors."""
    if file is not None and file.exists():
        rows = json.loads(file.read_text())
    else:
        if missing():
            raise SystemExit(missing()[0])
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            rows = [row for row in pool.map(counted, cases()) if row is not None]
        if file is not None:
            file.write_text(json.dumps(rows))
    lines = [HEAD]
    rows = [row for row in rows if work_of(tuple(row["case"]), True)]
    works = {dsp: [work_of(tuple(row["case"]), dsp) for row in rows] for dsp in (False, True)}
    for core in CORES:
        costs, errors = fit(works[core in DSP], [row["counts"][core] for row in rows])
        print(f"{core}: {len(rows)} networks; relative error mean / largest in per cent")
        for kind in [*KINDS, "whole"]:
            own = [abs(e) for e, row in zip(errors, rows, strict=True) if row["case"][0] == kind]
            if own:  # what only changes how a tensor is seen takes nothing
                print(f"  {kind:18} {len(own):3d} {100 * np.mean(own):6.1f} {100 * max(own):6.1f}")
        lines.append(
            f'    "{core}": {{\n'
            + "".join(f'        "{k}": {v},\n' for k, v in costs.items() if v)
            + "    },\n"
        )
    COSTS.write_text("".join(lines) + "}\n")


def fit_cmsis(file: Path) -> None:
    """Print coefficients of CMSIS-NN on each core, and the errors of the fits."""
    if not file.exists():
        print(f"{file} is not there: nothing to fit")
        return
    from counted_kernels import lowered_kernel

    from sparsemod.measure.cmsis import cmsis_work

    names = {"m0": "cortex-m0+", "m3": "cortex-m3", "m4": "cortex-m4", "m55": "cortex-m55"}
    for short, table in json.loads(file.read_text()).items():
        groups: dict[str, list[tuple[dict[str, float], int, str]]] = {}
        for name, row in table.items():
            try:
                graph, operator = lowered_kernel(name)
            except (ValueError, AttributeError, KeyError):
                print(f"  {name}: not a shape that is known here")
                continue
            work = cmsis_work(graph, operator, names[short])
            if work:
                part = next(iter(work)).split(".")[0]
                groups.setdefault(part, []).append((work, row["cmsis"], name))
        for part, members in groups.items():
            costs, errors = fit([w for w, _, _ in members], [n for _, n, _ in members])
            worst = int(np.abs(errors).argmax())
            print(
                f"{names[short]} {part}: {costs}; mean {100 * np.abs(errors).mean():.1f} %, "
                f"largest {100 * np.abs(errors).max():.1f} % ({members[worst][2]})"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", type=Path)
    parser.add_argument("--cmsis", type=Path, nargs="?", const=CMSIS)
    arguments = parser.parse_args()
    if arguments.cmsis is not None:
        fit_cmsis(arguments.cmsis)
    else:
        fit_bundles(arguments.counts)
