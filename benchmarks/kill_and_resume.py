"""A run killed again and again against one left alone; ``python benchmarks/kill_and_resume.py [kills]``.

One search of 24 arms runs undisturbed. Then the same search is started, killed by SIGKILL at a random moment
and started again at once, inline and with two workers, until it has been killed as often as the argument
says; the kills take turns between the whole process group and the main process alone. A run that ends before
is checked and begun anew. Checked behind every kill and at the end: the results file can be read, the
weights of the front are there, no arm is trained after it was recorded, no process stays (a worker that is
still importing ends when it is done with that), the next start gets the lock; and the table of a run that
has ended is that of the undisturbed one to the last byte. Needs Linux; exits with 1 on a mistake.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from ax.core.parameter import FixedParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from torch import nn
from torch.utils.data import TensorDataset

from sparsemod import Sparse
from sparsemod.candidate import Status
from sparsemod.search.experiment import Experiment
from sparsemod.train.trainer import TorchTrainer

INT, FLOAT = ParameterType.INT, ParameterType.FLOAT
LOG, TOKEN = "KILL_AND_RESUME_LOG", "KILL_AND_RESUME_TOKEN"
NAME = "killed"
MODES: dict[str, dict[str, Any]] = {
    "inline": {"executor": "inline"},
    "two workers": {"executor": "processes", "workers": 2},
}
START_SECONDS = 120.0
ORPHAN_SECONDS = 60.0
EARLY_SHARE = 0.25  # of the kills come before the first training of a start


class Net(nn.Module):
    """One convolution and one linear layer."""

    def __init__(self, parametrization: dict[str, Any], classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        filters = parametrization["filters"]
        self.conv = nn.Conv2d(input_shape[0], filters, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(filters)
        self.out = nn.Linear(filters, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of (n, channels, height, width) images."""
        out: torch.Tensor = self.out(torch.relu(self.norm(self.conv(x))).mean((2, 3)))
        return out


class LoggingTrainer(TorchTrainer):
    """Notes the seed of an arm, which no other arm has, when its training begins."""

    def fit(self, net: Any, train: Any, validation: Any, settings: Any, hooks: Any = ()) -> Any:
        """Train as usual."""
        with Path(os.environ[LOG]).open("a", encoding="ascii") as log:
            log.write(f"{settings.seed}\n")
        return super().fit(net, train, validation, settings, hooks)


def filters(config: dict[str, Any]) -> dict[str, Any]:
    config["filters"] += random.choice([-2, -1, 1, 2])
    return config


def search(root: Path, mode: str) -> None:
    """Run the search, or what is left of it; this is what is killed."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(360) % 3
    x = torch.randn(360, 1, 8, 8, generator=generator)
    x[:, 0] += 0.4 * y.view(-1, 1, 1) * torch.linspace(-1, 1, 8)
    Sparse(
        r1=5, r2=4, r3=3, epochs1=12, epochs2=12, epochs3=8, name=NAME, root=root, objectives=4, batch_size=2,
        pruning=True, quant_scheme="post", flops=80_000_000, classes=3, net=Net, trainer=LoggingTrainer,
        morpher_ops={"filters": filters},
        datasets=[TensorDataset(x[a : a + 120], y[a : a + 120]) for a in (0, 120, 240)],
        search_space=SearchSpace(
            [
                RangeParameter("learning_rate", FLOAT, 1e-3, 1e-1, log_scale=True),
                FixedParameter("learning_gamma", FLOAT, 0.5),
                FixedParameter("learning_step", FLOAT, 0.02),
                RangeParameter("batch_size", INT, 8, 32),
                RangeParameter("prune_threshold", FLOAT, 0.1, 0.9),
                RangeParameter("filters", INT, 2, 40),
            ]
        ),
        **MODES[mode],
    ).run_sparse()  # fmt: skip


class Start:
    """One start of the search in a process group of its own."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.root, self.log, self.errors = folder / "results", folder / "trained.log", folder / "stderr.txt"
        folder.mkdir(exist_ok=True)
        self.log.touch()
        self.token = secrets.token_hex(8)
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--search", str(self.root), mode],
                env={**os.environ, LOG: str(self.log), TOKEN: self.token, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def wait_for_lock(self) -> None:
        """Wait until the start has the results folder, or has ended."""
        lock, end = self.root / ".lock", time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                if lock.read_text().strip() == str(self.process.pid):
                    return
            time.sleep(0.01)

    def wait_for_training(self, n_before: int) -> None:
        """Wait until one more training has begun than before, or the start has ended."""
        while self.process.poll() is None and len(self.trained()) == n_before:
            time.sleep(0.01)

    def trained(self) -> list[int]:
        """Return the seeds of the arms whose training has begun, in order, of all starts in this folder."""
        return [int(line) for line in self.log.read_text().split()]

    def recorded(self) -> set[int]:
        """Return the seeds of the arms that have been evaluated."""
        content = self.root / f"{NAME}.json"
        if not content.exists():
            return set()
        arms = Experiment.from_json(content.read_bytes(), str(content)).arms
        return {a.seed for a in arms if a.status is not Status.PENDING}

    def kill(self, *, whole_group: bool) -> None:
        """Kill by SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if whole_group else os.kill)(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def processes(self) -> list[int]:
        """Return the processes that this start has left behind."""
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and self.token.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def orphans(self) -> list[int]:
        """Return the processes that are still there when they should have noticed."""
        end = time.monotonic() + ORPHAN_SECONDS
        while (found := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        return found


def check_files(start: Start) -> list[str]:
    """Say what is wrong with the files of a run, whatever the moment it was left at."""
    path = start.root / f"{NAME}.json"
    if not path.exists():
        return []
    experiment = Experiment.from_json(path.read_bytes(), str(path))
    kept = {p.stem for p in (start.root / "models").glob("*.safetensors")}
    lost = [a.name for a in experiment.front() if a.name not in kept]
    return [f"no weights of {', '.join(lost)}, which are on the front"] if lost else []


def undisturbed(folder: Path, mode: str) -> tuple[bytes, float, float]:
    """Run the search once; return its table, the seconds to the first training, and from there to the end."""
    start = Start(folder, mode)
    start.wait_for_lock()
    begin = time.monotonic()
    start.wait_for_training(0)
    first = time.monotonic()
    if start.process.wait() != 0:
        sys.exit(f"the undisturbed run ended with {start.process.returncode}: {start.errors.read_text()}")
    return (start.root / f"{NAME}.csv").read_bytes(), first - begin, time.monotonic() - first


def killed(folder: Path, mode: str, n_kills: int, rng: random.Random) -> tuple[int, int, list[str]]:
    """Kill and resume the search; return the number of runs, of arms that were begun again, and mistakes."""
    reference, to_first, rest = undisturbed(folder / "reference", mode)
    wrong: list[str] = []
    n_runs = n_again = done = 0
    while done < n_kills:
        n_runs += 1
        ended, starts = False, []
        while not ended:
            run = folder / f"run-{n_runs}"
            start = Start(run, mode)
            before, n_before = start.recorded(), len(start.trained())
            starts.append(start)
            start.wait_for_lock()
            if done < n_kills:
                early = rng.random() < EARLY_SHARE
                if not early:
                    start.wait_for_training(n_before)
                delay = rng.uniform(0, to_first if early else 3 * rest / n_kills)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    start.process.wait(delay)
            else:
                start.process.wait()
            ended = start.process.poll() is not None
            where = f"{mode}, run {n_runs}, kill {done}"
            if ended and start.process.returncode != 0:
                wrong.append(
                    f"{where}: exit code {start.process.returncode}: {start.errors.read_text().strip()}"
                )
                break
            if not ended:
                start.kill(whole_group=done % 2 == 0)
                done += 1
            wrong += [f"{where}: {mistake}" for mistake in check_files(start)]
            twice = before & set(start.trained()[n_before:])
            wrong += [f"{where}: the recorded arm of seed {seed} was trained again" for seed in sorted(twice)]
        wrong += [f"{mode}, run {n_runs}: process {pid} is left" for s in starts for pid in s.orphans()]
        n_again += len(start.trained()) - len(set(start.trained()))
        if (start.root / f"{NAME}.csv").read_bytes() != reference:
            wrong.append(f"{mode}, run {n_runs}: the table differs from the undisturbed run's: {run}")
    return n_runs, n_again, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", nargs="?", type=int, default=20, help="kills of each mode")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    n_kills, seed = vars(parser.parse_args()).values()
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="kill-and-resume-"))
    tables, wrong = set(), []
    for mode in MODES:
        place = folder / mode.replace(" ", "-")
        place.mkdir()
        n_runs, n_again, mistakes = killed(place, mode, n_kills, rng)
        tables.add((place / "reference" / "results" / f"{NAME}.csv").read_bytes())
        wrong += mistakes
        counts = f"{n_runs} run(s), {n_again} arm(s) begun again, {len(mistakes)} mistake(s)"
        print(f"{mode}: {n_kills} kills, {counts}", flush=True)
    if len(tables) > 1:
        wrong.append("the undisturbed runs inline and with two workers differ")
    print(
        "checked: the table byte for byte, no arm trained after it was recorded, no process left, "
        "every start gets the lock, results file and weights of the front intact behind every kill"
    )
    for mistake in wrong:
        print(f"WRONG: {mistake}")
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--search"]:
        search(Path(sys.argv[2]), sys.argv[3])
    else:
        main()
