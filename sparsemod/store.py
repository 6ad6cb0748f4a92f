"""Every file of a run: where it is, and how it is written so that a run can be killed at any moment.

The results file `<name>.json` is the state. A save writes what it needs first (weights of new arms), then the
results file, then what follows from it (the table), and deletes last what is no longer needed. Each file is
written beside its place, synced and renamed over it: a reader finds the old content or the new, never a part.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from sparsemod.errors import StoreError

__all__ = ["Store", "write_whole"]

_ARM = re.compile(r"[0-9]+_[0-9]+")
_NAME = re.compile(r"\w[\w.+ -]{0,99}")
_MODEL_SUFFIXES = (".safetensors", ".tflite", ".layers.json")


class Store:
    """The files of one run under one folder.

    Reading needs nothing, and may go on beside a run. Writing needs the store to be entered, which makes the
    folders, takes the lock and removes what a killed run left half written:

        with Store("results", "mnist") as store:
            store.save(experiment.to_json(), experiment.to_csv())

    Args:
        root: The folder. A run has it for itself, since `models/` and `run.json` do not carry its name.
        name: Name of the run, and of its two result files.

    Raises:
        StoreError: `name` cannot be the name of a file.

    Attributes:
        root, csv_path, json_path, run_path, models_path, tests_path: Where everything is.
    """

    def __init__(self, root: str | Path, name: str) -> None:
        if not _NAME.fullmatch(name) or name.strip() != name or name.lower() == "run":
            raise StoreError(f"name: expected a plain file name other than 'run', got {name!r}")
        self.root = Path(root)
        self.name = name
        self.csv_path = self.root / f"{name}.csv"
        self.json_path = self.root / f"{name}.json"
        self.run_path = self.root / "run.json"
        self.models_path = self.root / "models"
        self.tests_path = self.root / "tests"
        self._lock: int | None = None

    def __enter__(self) -> Store:
        """Take the lock; nobody else can enter until it is given back or this process dies.

        Raises:
            StoreError: The folder cannot be written, is in use, or holds a run of another name.
        """
        with _story(self.root, "cannot be used"):
            self.root.mkdir(parents=True, exist_ok=True)
            with _story(self.models_path, "cannot be used"):
                self.models_path.mkdir(exist_ok=True)
            lock = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._acquire(lock)
            self._sweep()
            self._finish_archiving()
            owner = (self.read_run() or {}).get("name", self.name)
            if owner != self.name:
                raise StoreError(
                    f"{self.root}: holds the run '{owner}'; '{self.name}' needs a root of its own"
                )
        except BaseException:
            self._lock = None
            os.close(lock)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def _acquire(self, lock: int) -> None:
        with _story(self.root, "cannot be locked"):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
                by = f"process {holder}" if holder else "another process"
                raise StoreError(f"{self.root}: in use by {by}") from None
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode("ascii"), 0)
        self._lock = lock

    def _sweep(self) -> None:
        with _story(self.root, "cannot be tidied up"):
            for path in (self.json_path, self.csv_path, self.run_path):
                _partial(path).unlink(missing_ok=True)
            for suffix in _MODEL_SUFFIXES:
                for path in self.models_path.glob(f".*{suffix}.partial"):
                    path.unlink()
            for path in self.tests_path.glob(".*.partial"):
                path.unlink()

    def save(self, results: bytes, table: str) -> None:
        """Write the results file, and the table that follows from it.

        Args:
            results: Content of `<name>.json`. Weights of its arms must have been put before.
            table: Content of `<name>.csv`.

        Raises:
            StoreError: A file cannot be written; the former state is intact.
        """
        self._write(self.json_path, results)
        self._write(self.csv_path, table.encode("utf-8"))

    def read(self) -> bytes | None:
        """Return the content of the results file, or None when there is none.

        Raises:
            StoreError: It cannot be read.
        """
        return _read(self.json_path)

    def read_table(self) -> str | None:
        """Return the content of the table, or None when there is none.

        After a run was killed between the two files of a save, the table is one step behind the results.

        Raises:
            StoreError: It cannot be read.
        """
        content = _read(self.csv_path)
        return None if content is None else content.decode("utf-8", "replace")

    def put_weights(self, arm: str, weights: bytes) -> None:
        """Write the weights of an arm; to be called before the save that puts the arm on the front.

        Raises:
            StoreError: `arm` is no arm's name, or the file cannot be written.
        """
        self._write(self._model_path(arm, ".safetensors"), weights)

    def weights(self, arm: str) -> bytes | None:
        """Return the weights of an arm as safetensors, or None when none are kept.

        Raises:
            StoreError: `arm` is no arm's name, or the file cannot be read.
        """
        return _read(self._model_path(arm, ".safetensors"))

    def put_layers(self, arm: str, layers: bytes) -> None:
        """Write the layer table of an arm, `models/<arm>.layers.json`; it goes when the weights go.

        Raises:
            StoreError: `arm` is no arm's name, or the file cannot be written.
        """
        self._write(self._model_path(arm, ".layers.json"), layers)

    def layers(self, arm: str) -> bytes | None:
        """Return the layer table of an arm as JSON, or None when none is kept.

        Raises:
            StoreError: `arm` is no arm's name, or the file cannot be read.
        """
        return _read(self._model_path(arm, ".layers.json"))

    def put_tflite(self, arm: str, content: bytes) -> None:
        """Write the network of an arm as a file for its chip, `models/<arm>.tflite`.

        To be called before the save that puts the arm on the front.

        Raises:
            StoreError: `arm` is no arm's name, or the file cannot be written.
        """
        self._write(self._model_path(arm, ".tflite"), content)

    def tflite(self, arm: str) -> bytes | None:
        """Return the `.tflite` file of an arm, or None when none is kept.

        Raises:
            StoreError: `arm` is no arm's name, or the file cannot be read.
        """
        return _read(self._model_path(arm, ".tflite"))

    def retain(self, names: Collection[str], parents: Collection[str] = ()) -> None:
        """Delete the models of all other arms; to be called after the save that took them off the front.

        Args:
            names: The arms on the front.
            parents: Arms whose weights are still needed; their files for the chip go.

        Raises:
            StoreError: A file cannot be deleted.
        """
        self._check_entered()
        with _story(self.models_path, "cannot be tidied up"):
            for path in sorted(self.models_path.iterdir()):
                arm, dot, kind = path.name.partition(".")
                if dot + kind not in _MODEL_SUFFIXES or not _ARM.fullmatch(arm) or arm in names:
                    continue
                if arm not in parents or dot + kind == ".tflite":
                    path.unlink()

    def _model_path(self, arm: str, suffix: str) -> Path:
        if not _ARM.fullmatch(arm):
            raise StoreError(f"expected the name of an arm like '12_0', got {arm!r}")
        return self.models_path / f"{arm}{suffix}"

    def put_test(self, file: str, content: bytes) -> Path:
        """Write a file of a test, `tests/<file>`, and return where it is.

        Raises:
            StoreError: `file` is no plain file name, or it cannot be written.
        """
        path = self._test_path(file)
        with _story(self.tests_path, "cannot be used"):
            self.tests_path.mkdir(exist_ok=True)
        self._write(path, content)
        return path

    def read_test(self, file: str) -> bytes | None:
        """Return the content of a file of a test, or None when there is none.

        Raises:
            StoreError: `file` is no plain file name, or it cannot be read.
        """
        return _read(self._test_path(file))

    def _test_path(self, file: str) -> Path:
        if not _NAME.fullmatch(file):
            raise StoreError(f"expected the name of a file, got {file!r}")
        return self.tests_path / file

    def write_run(self, record: Mapping[str, Any]) -> None:
        """Write `run.json`: versions, seed, configuration, timing. The name of the run is added.

        Raises:
            StoreError: It cannot be written.
            TypeError: The record holds something that JSON has no word for.
        """
        text = json.dumps({**record, "name": self.name}, indent=2, ensure_ascii=True)
        self._write(self.run_path, f"{text}\n".encode("ascii"))

    def read_run(self) -> dict[str, Any] | None:
        """Return the content of `run.json`, or None when there is none.

        Raises:
            StoreError: It cannot be read, or is no JSON object.
        """
        content = _read(self.run_path)
        if content is None:
            return None
        try:
            record = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{self.run_path}: is damaged: it is no JSON") from error
        if not isinstance(record, dict):
            raise StoreError(f"{self.run_path}: is damaged: expected a JSON object")
        return record

    def archive(self) -> Path | None:
        """Move everything of the run to `<root>/previous-<n>/`.

        The results file goes first; if the run is killed after that, the next one to enter moves the rest.

        Returns:
            That folder, or None when there was nothing to move.

        Raises:
            StoreError: Something cannot be moved.
        """
        self._check_entered()
        if not any(self._to_archive()):
            return None
        with _story(self.root, "the earlier results cannot be moved"):
            numbers = [
                int(m[1]) for p in self.root.iterdir() if (m := re.fullmatch(r"previous-(\d+)", p.name))
            ]
            moving = self.root / f".previous-{max(numbers, default=0) + 1}"
            moving.mkdir()
        return self._move_to(moving)

    def _to_archive(self) -> Iterator[Path]:
        for path in (self.json_path, self.csv_path, self.run_path):
            if path.exists():
                yield path
        if any(self.models_path.iterdir()):
            yield self.models_path
        if self.tests_path.exists():
            yield self.tests_path

    def _move_to(self, moving: Path) -> Path:
        target = moving.with_name(moving.name[1:])
        with _story(self.root, "the earlier results cannot be moved"):
            for path in self._to_archive():
                path.rename(moving / path.name)
                _sync(self.root)
            _sync(moving)
            moving.rename(target)
            self.models_path.mkdir(exist_ok=True)
            _sync(self.root)
        return target

    def _finish_archiving(self) -> None:
        with _story(self.root, "the earlier results cannot be moved"):
            for moving in self.root.glob(".previous-*"):
                if any(moving.iterdir()):
                    self._move_to(moving)
                else:
                    moving.rmdir()

    def _check_entered(self) -> None:
        if self._lock is None:
            raise RuntimeError("a store is written to inside its with block only")

    def _write(self, path: Path, content: bytes) -> None:
        self._check_entered()
        write_whole(path, content)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place and rename it there, so that nobody finds half of it.

    Raises:
        StoreError: It cannot be written.
    """
    with _story(path, "cannot be written"):
        partial = _partial(path)
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
        _sync(path.parent)


@contextlib.contextmanager
def _story(path: Path, what: str) -> Iterator[None]:
    """Turn the operating system's refusal into one line that says which file and why."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {what}: {error.strerror or error}") from error


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _read(path: Path) -> bytes | None:
    with _story(path, "cannot be read"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def _sync(folder: Path) -> None:
    """Make renames in a folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
