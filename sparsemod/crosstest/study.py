"""The trainings of a test, each kept as it is finished, so that a killed test goes on where it was.

The file `tests/<name>.json` is the state: what the test is of, and a score for each finished training. It is
written anew, atomically, behind every training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sparsemod.candidate import Status
from sparsemod.crosstest.scores import Score, score, summary, summed
from sparsemod.errors import StoreError
from sparsemod.evaluate.executors import Executor
from sparsemod.evaluate.task import Job, Split
from sparsemod.store import Store

__all__ = ["Failure", "Study", "Training", "split_digest"]

VERSION = 1

Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Training:
    """One training that a test asks for.

    Attributes:
        arm, seed, fold, subjects: As in `Score`.
        job: What is evaluated, with its split; its `index` is the training's place in the test.
    """

    arm: str
    seed: int
    fold: int
    subjects: tuple[str, ...]
    job: Job

    @property
    def key(self) -> Key:
        """What tells it from the others."""
        return (self.arm, self.seed, self.fold)

    @property
    def split(self) -> Split:
        """The samples of its three parts."""
        if self.job.split is None:
            raise ValueError("a training of a test needs a split")
        return self.job.split


@dataclass(frozen=True, slots=True)
class Failure:
    """A training that failed; it is tried again when the test is started again."""

    arm: str
    seed: int
    fold: int
    reason: str
    details: str = ""


class Study:
    """A test under its name in the store.

    Args:
        store: Entered.
        name: Stem of its files.
        setting: Whatever must be the same for finished trainings to count, as plain JSON values.
        trainings: All that it asks for.

    Raises:
        StoreError: The file is damaged, or is of another setting or other data.
    """

    def __init__(
        self, store: Store, name: str, setting: Mapping[str, Any], trainings: Sequence[Training]
    ) -> None:
        self._store = store
        self._name = name
        self._setting = json.loads(json.dumps(setting))
        self._trainings = list(trainings)
        self._kept = self._read()

    @property
    def scores(self) -> list[Score]:
        """The finished trainings that this test asks for, in its order."""
        return [self._kept[t.key] for t in self._trainings if t.key in self._kept]

    @property
    def missing(self) -> list[Training]:
        """The trainings that are not finished."""
        return [t for t in self._trainings if t.key not in self._kept]

    def run(
        self,
        executor: Executor,
        tell: Callable[[Score | Failure], None] = lambda _: None,
    ) -> list[Failure]:
        """Do what is missing and return what failed.

        Args:
            executor: Evaluates splits.
            tell: Called behind every training.
        """
        missing = self.missing
        by_index = {t.job.index: t for t in missing}
        failures = []
        for job, done in executor.run(t.job for t in missing):
            training = by_index[job.index]
            if done.status is not Status.COMPLETED:
                failure = Failure(training.arm, training.seed, training.fold, done.reason, done.details)
                failures.append(failure)
                tell(failure)
                continue
            split = training.split
            sizes = (len(split.train), len(split.validation), len(split.test))
            result = score(training.arm, training.seed, training.fold, training.subjects, sizes, done)
            self._kept[training.key] = result
            self._save()
            tell(result)
        return failures

    def finish(self) -> None:
        """Write the state with its summary once more, for a test that had nothing left to do."""
        self._save()

    def _save(self) -> None:
        asked = {t.key: split_digest(t.split) for t in self._trainings}
        document = {
            "version": VERSION,
            "setting": self._setting,
            "summary": {
                arm: {
                    **{name: asdict(found) for name, found in summary(scores).items()},
                    "confusion": summed([s.confusion for s in scores]),
                }
                for arm, scores in _by_arm(self.scores).items()
            },
            "scores": [
                {**s.as_dict(), "split": asked.get(key) or self._digests[key]}
                for key, s in sorted(self._kept.items())
            ],
        }
        text = json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False)
        self._store.put_test(f"{self._name}.json", f"{text}\n".encode("ascii"))

    def _read(self) -> dict[Key, Score]:
        self._digests: dict[Key, str] = {}
        where = self._store.tests_path / f"{self._name}.json"
        content = self._store.read_test(where.name)
        if content is None:
            return {}
        kept = {}
        try:
            document = json.loads(content)
            setting = dict(document["setting"])
            for values in document["scores"]:
                found = Score.from_dict(values)
                key = (found.arm, int(found.seed), int(found.fold))
                kept[key], self._digests[key] = found, str(values["split"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(f"{where}: is damaged; delete it to start this test over") from error
        for name in sorted({*setting, *self._setting}):
            was, now = setting.get(name), self._setting.get(name)
            if was != now:
                raise StoreError(
                    f"{where}: holds a test with {name} = {_short(was)}, now it is {_short(now)}; "
                    "delete it to start this test over"
                )
        for training in self._trainings:
            if self._digests.get(training.key, digest := split_digest(training.split)) != digest:
                raise StoreError(
                    f"{where}: holds a test of other data or groups; delete it to start this test over"
                )
        return kept


def split_digest(split: Split) -> str:
    """Return a short text that tells a split from others."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (split.train, split.validation, split.test):
        digest.update(len(part).to_bytes(8, "big") + part.astype("<i8").tobytes())
    return digest.hexdigest()


def _by_arm(scores: Sequence[Score]) -> dict[str, list[Score]]:
    found: dict[str, list[Score]] = {}
    for each in scores:
        found.setdefault(each.arm, []).append(each)
    return found


def _short(value: object) -> str:
    shown = " ".join(str(value).split())
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
