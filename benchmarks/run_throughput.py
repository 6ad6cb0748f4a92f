"""How much of a run is training, and what a second worker adds: ``python benchmarks/run_throughput.py [N]``.

Searches on the digits of the example with N rounds a stage, in a process of its own each:

- inline: wall seconds are split into those of the evaluations, those of the proposals, and the rest, which is
  overhead (recording, saving, printing).
- one worker, then two: in rounds of two arms, and with an arm whenever a worker is free. The start of the
  workers is not counted: the clock runs from the first arm that is done to the last.

Needs a machine that does nothing else.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[1] / "examples" / "digits"


def search(root: str, rounds: int, **changes: Any) -> dict[str, float]:
    """Run one search and return its figures."""
    sys.path.insert(0, str(EXAMPLE))
    os.chdir(EXAMPLE)
    from data import load_digits_sets
    from net import Net, operations, search_space

    from sparsemod import Sparse
    from sparsemod.sparse import run as runs
    from sparsemod.sparse.progress import Reporter

    ends: list[float] = []
    proposing = [0.0]
    propose, report = runs._propose, Reporter.arm

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return propose(*args, **kwargs)
        finally:
            proposing[0] += time.perf_counter() - start

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        report(self, *args, **kwargs)
        ends.append(time.perf_counter())

    runs._propose, Reporter.arm = timed, noted  # type: ignore[assignment,method-assign]
    datasets, classes = load_digits_sets()
    sparse = Sparse.from_config(
        "config.cfg",
        datasets=datasets,
        classes=classes,
        search_space=search_space(),
        net=Net,
        morpher_ops=operations,
        root=root,
        **{"r1": rounds, "r2": rounds, "r3": rounds, **changes},
    )
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        result = sparse.run_sparse()
    wall = time.perf_counter() - start
    training = sum(arm.evaluation.seconds for arm in result.arms if arm.evaluation)
    return {
        "arms": len(result.arms),
        "wall": wall,
        "training": training,
        "proposing": proposing[0],
        "arms_per_minute": 60 * (len(ends) - 1) / (ends[-1] - ends[0]),
    }


def apart(rounds: int, **changes: Any) -> dict[str, float]:
    """Run `search` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--one", folder, str(rounds), json.dumps(changes)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures


def main(rounds: int = 8) -> None:
    """Run the searches and print the figures."""
    alone = apart(rounds, batch_size=1, executor="inline")
    rest = alone["wall"] - alone["training"] - alone["proposing"]
    print(f"inline, {alone['arms']:.0f} arms: {alone['wall']:.1f} s", end="")
    print(f" = training {alone['training']:.1f} + proposing {alone['proposing']:.1f} + overhead {rest:.1f} s")
    print(f"overhead: {rest / alone['wall']:.1%} of the run (wanted: below 5 %)")
    kinds: dict[str, dict[str, Any]] = {
        "rounds of two": {"batch_size": 2},
        "asynchronous": {"batch_size": 1, "asynchronous": True},
    }
    for name, how in kinds.items():
        n = rounds if how["batch_size"] == 2 else 2 * rounds
        one, two = (apart(n, executor="processes", workers=workers, **how) for workers in (1, 2))
        ratio = two["arms_per_minute"] / one["arms_per_minute"]
        print(
            f"{name}: {one['arms_per_minute']:.1f} arms a minute with one worker, "
            f"{two['arms_per_minute']:.1f} with two: {ratio:.2f} times (wanted: 1.8)"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(search(sys.argv[2], int(sys.argv[3]), **json.loads(sys.argv[4]))))
    else:
        main(*(int(argument) for argument in sys.argv[1:]))
