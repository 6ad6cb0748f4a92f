"""Runs a `.tflite` file in the real interpreter; started as a process of its own, apart from the package.

    python runner.py MODEL INPUTS OUTPUTS N_OUTPUTS ARENA_BYTES FRESH

INPUTS is a `.npz` with ``0``, ``1``, ... of shape (samples, *shape); OUTPUTS is written as one. FRESH is 1
where each sample needs a new interpreter, because resetting one does not clear the state of an LSTM. What the
interpreter allocated goes to the standard error stream, where only who started the process can read it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np


def main(model: str, inputs: str, outputs: str, n_outputs: str, arena_bytes: str, fresh: str) -> None:
    """Run every sample, write the outputs and print the allocations."""
    from tflite_micro.python.tflite_micro import runtime

    content = Path(model).read_bytes()
    with np.load(inputs) as stored:
        samples = [stored[str(i)] for i in range(len(stored.files))]
    results: list[list[np.ndarray]] = [[] for _ in range(int(n_outputs))]
    interpreter = runtime.Interpreter.from_bytes(content, arena_size=int(arena_bytes))
    for k in range(len(samples[0])):
        if k and fresh == "1":
            interpreter = runtime.Interpreter.from_bytes(content, arena_size=int(arena_bytes))
        for i, values in enumerate(samples):
            interpreter.set_input(values[k], i)
        interpreter.invoke()
        for i, parts in enumerate(results):
            parts.append(np.array(interpreter.get_output(i)))
    stacked: dict[str, Any] = {str(i): np.stack(parts) for i, parts in enumerate(results)}
    np.savez(outputs, **stacked)
    interpreter.print_allocations()


if __name__ == "__main__":
    main(*sys.argv[1:])
