"""A test of an arm from end to end: exact figures, files, resuming, workers, errors."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from rigged import RiggedNet, rigged_arguments, rigged_groups
from tiny_problem import Net, arguments, search_space

from sparsemod import CrossTest, Sparse
from sparsemod.errors import CandidateError, ConfigError, DataError, StoreError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GROUPS = [[f"s{k % 4}" for k in range(32)]] * 3
TEST = ("pruning", "splitter", "quant_scheme", "objectives", "name", "root", "flops")
OBJECTS = ("datasets", "classes", "search_space", "net", "quant_params", "collate_fn")


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    root = tmp_path_factory.mktemp("searched")
    search(root)
    return root


def search(root):
    return Sparse(**arguments(root, r1=3, r2=0, r3=0, morphisms=False)).run_sparse()


@pytest.fixture
def results(searched, tmp_path):
    """A copy of the results of a search."""
    import shutil

    return Path(shutil.copytree(searched, tmp_path / "results"))


def cross(root, arm="1_0", **changes):
    given = arguments(root)
    given = {key: given[key] for key in (*TEST, *OBJECTS)}
    return CrossTest(**{**given, "epochs": 1, "arm": arm, "groups": GROUPS, **changes})


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_means_deviations_and_confusion_are_those_worked_by_hand(tmp_path):
    """The rigged net takes every sample for class 0, and subjects have 1, 2 and 3 of 4 samples of class 0."""
    Sparse(**rigged_arguments(tmp_path)).run_sparse()
    result = Sparse(**rigged_arguments(tmp_path)).cross_test("0_0", split="loso")
    assert [s.subjects for s in result.scores] == [("1",), ("2",), ("3",)]
    assert [s.error for s in result.scores] == [0.75, 0.5, 0.25]
    assert [s.balanced_accuracy for s in result.scores] == [0.5, 0.5, 0.5]
    assert [s.confusion for s in result.scores] == [((1, 0), (3, 0)), ((2, 0), (2, 0)), ((3, 0), (1, 0))]
    assert result.confusion == ((6, 0), (6, 0))
    assert (result.summary["error"].mean, result.summary["error"].deviation) == (0.5, 0.25)
    assert (result.summary["accuracy"].mean, result.summary["balanced_accuracy"].deviation) == (0.5, 0.0)
    table = rows(result.csv)
    assert [row["row"] for row in table] == ["split"] * 3 + ["mean", "deviation"]
    assert [row["error"] for row in table] == ["0.75", "0.5", "0.25", "0.5", "0.25"]
    assert [row["n_scored"] for row in table] == ["4", "4", "4", "", ""]
    assert result.confusion_csv.read_text() == "class,0,1\n0,6,0\n1,6,0\n"
    stored = json.loads(result.json.read_text())["summary"]["0_0"]
    assert stored["confusion"] == [[6, 0], [6, 0]]
    assert stored["error"] == {"mean": 0.5, "deviation": 0.25, "lowest": 0.25, "highest": 0.75, "n": 3}
    assert result.plot.read_bytes().startswith(b"\x89PNG")


def test_a_test_goes_on_with_more_seeds_and_trains_nothing_twice(results, monkeypatch):
    from sparsemod.sparse import testing

    first = cross(results, split="kfold", n_splits=4).run()
    trained = []
    whole = testing.evaluate_split
    monkeypatch.setattr(testing, "evaluate_split", lambda t, j: trained.append(j.index) or whole(t, j))
    again = cross(results, split="kfold", n_splits=4).run()
    assert trained == []
    assert again.scores == first.scores
    more = cross(results, split="kfold", n_splits=4, seeds=2).run()
    assert trained == [4, 5, 6, 7]
    assert more.scores[:4] == first.scores


def test_workers_give_the_same_files(results, tmp_path):
    import shutil

    other = Path(shutil.copytree(results, tmp_path / "other"))
    one = cross(results, executor="inline").run()
    two = cross(other, workers=2).run()
    assert one.csv.read_bytes() == two.csv.read_bytes()
    assert one.plot.read_bytes() == two.plot.read_bytes()


def test_a_killed_test_goes_on_and_ends_as_if_it_had_not_been(results, tmp_path):
    import shutil

    other = Path(shutil.copytree(results, tmp_path / "other"))
    whole = cross(other, seeds=3).run()
    state = results / "tests" / "1_0-loso.json"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE, HERE.parent / "sparse"))),
    }
    code = f"from test_cross_test import cross; cross({str(results)!r}, seeds=3, net=SlowNet).run()"
    code = f"from rigged import SlowNet; {code}"
    child = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL)
    while child.poll() is None and not (state.exists() and len(read_scores(state)) >= 2):
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    kept = read_scores(state)
    assert 2 <= len(kept) < 12
    result = cross(results, seeds=3).run()
    assert [s["seconds"] for s in read_scores(state)][: len(kept)] == [s["seconds"] for s in kept]
    assert result.csv.read_bytes() == whole.csv.read_bytes()


def read_scores(path):
    return json.loads(path.read_text())["scores"]


def test_a_half_written_file_is_swept_and_the_archive_takes_tests(results):
    result = cross(results).run()
    partial = results / "tests" / ".1_0-loso.json.partial"
    partial.write_text("{")
    cross(results).run()
    assert not partial.exists()
    Sparse(**arguments(results, r1=1, r2=0, r3=0, morphisms=False, resume=False)).run_sparse()
    assert not result.json.exists()
    assert (results / "previous-1" / "tests" / result.json.name).exists()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"arm": "9_0"}, StoreError, "there is no arm '9_0'; the nearest names are "),
        ({"search_space": search_space(filters=11)}, StoreError, "are of another search space: "),
        ({"name": "other"}, StoreError, "there are no results yet"),
        ({"groups": None, "split": "loso"}, DataError, "split = loso needs groups"),
        ({"groups": [["a"] * 31] * 3}, DataError, "expected 32 values for 32 samples of the training set"),
        ({"groups": ["a"] * 95}, DataError, "expected 96 values for 96 samples of the three sets, got 95"),
        ({"groups": [[0.5] * 32] * 3}, DataError, "expected integers or texts, got 0.5"),
        ({"groups": 3}, DataError, "groups: expected one value a sample"),
        ({"split": "losso"}, ConfigError, r"got 'losso' \(did you mean 'loso'\?\)"),
        ({"n_splits": 1}, ConfigError, "n_splits: expected an integer of 2 or more, got 1"),
        ({"validation": 1}, ConfigError, "validation: expected a number between 0 and 1, got 1"),
        ({"seeds": 0}, ConfigError, "seeds: expected an integer of 1 or more, got 0"),
        ({"executor": "inline", "workers": 2}, ConfigError, "workers: executor = inline"),
    ],
)
def test_what_is_wrong_is_one_line(results, changes, error, words):
    with pytest.raises(error, match=words) as caught:
        cross(results, **changes).run()
    assert "\n" not in str(caught.value)
    assert not (results / "tests").exists()


def test_a_test_of_other_settings_or_data_is_not_mixed(results):
    cross(results).run()
    with pytest.raises(StoreError, match="holds a test with epochs = 1, now it is 2; delete it to start"):
        cross(results, epochs=2).run()
    with pytest.raises(StoreError, match="holds a test of other data or groups"):
        cross(results, groups=[[f"s{k % 5}" for k in range(32)]] * 3).run()
    path = results / "tests" / "1_0-loso.json"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(StoreError, match="is damaged; delete it to start this test over"):
        cross(results).run()


class Raises(Net):
    def forward(self, x):
        if self.training:
            raise RuntimeError("no")
        return super().forward(x)


def test_failed_trainings_are_tried_again(results):
    with pytest.raises(CandidateError, match=r"every training of the test failed: Net\.forward raised"):
        cross(results, net=Raises).run()
    assert len(cross(results).run().scores) == 4


def test_the_default_split_follows_the_groups(results):
    assert cross(results).run().split == "loso"
    result = cross(results, groups=None).run()
    assert (result.split, len(result.scores)) == ("stratified", 5)


CONFIG = """
[DEFAULT]
train = {train}
[TRAIN]
r1 = 3
r2 = 0
r3 = 0
epochs1 = 1
epochs2 = 1
epochs3 = 1
name = tiny
root = {root}
objectives = 4
pruning = true
quant_scheme = post
flops = 80000000
[TEST]
pruning = true
splitter = false
quant_scheme = post
objectives = 4
name = tiny
root = {root}
epochs = 2
arm = 2_0
"""


def test_train_false_runs_the_test_with_the_same_script(tmp_path, capsys):
    config = tmp_path / "config.cfg"
    given = {key: arguments(tmp_path)[key] for key in (*OBJECTS, "morpher_ops")}
    config.write_text(CONFIG.format(train="true", root=tmp_path))
    Sparse.from_config(config, **given, groups=GROUPS).run_sparse()
    config.write_text(CONFIG.format(train="false", root=tmp_path))
    result = Sparse.from_config(config, **given, groups=GROUPS).run_sparse()
    assert (result.arm, result.split, len(result.scores)) == ("2_0", "loso", 4)
    assert all(s.n_epochs == 2 for s in result.scores)
    assert all(s.resources.latency_seconds > 0 for s in result.scores)
    assert "Test of arm 2_0: loso" in capsys.readouterr().out


def test_a_training_is_the_evaluation_of_the_search_on_those_samples(results):
    """The parts of a split, handed to the evaluation as data sets of their own, give the same figures."""
    from dataclasses import replace

    from torch.utils.data import Subset

    from sparsemod.evaluate.evaluation import Job, evaluate, test_error
    from sparsemod.evaluate.splits import joined

    test = cross(results)
    score = test.run().scores[0]
    whole, groups = joined(arguments(results)["datasets"]), np.array(GROUPS).ravel()
    tested = np.flatnonzero(groups == "s0")
    assert (score.n_test, score.subjects) == (len(tested), ("s0",))
    from sparsemod.sparse import testing

    arm = testing._arm(test.setup, test.config)
    found = testing.make_splits(testing.Plan("loso"), 96, test.setup.groups)[0]
    task = replace(
        test.setup.task,
        **{p: Subset(whole, getattr(found.split, p).tolist()) for p in ("train", "validation", "test")},
    )
    job = Job(0, replace(arm.candidate, parent=None), 1, testing._job_seed(0, found))
    done = evaluate(task, job)
    assert (done.error, done.resources) == (score.validation_error, score.resources)
    assert test_error(task, job.candidate, done.weights, job.seed) == score.error


def test_the_front_is_ranked_by_the_mean_of_its_seeds(results):
    sparse = Sparse(**arguments(results, r1=3, r2=0, r3=0, morphisms=False))
    ranking = sparse.rank_front(seeds=2)
    means = [a.summary["error"].mean for a in ranking.arms]
    assert means == sorted(means)
    assert all(m == sum(s.error for s in a.scores) / 2 for m, a in zip(means, ranking.arms, strict=True))
    assert {s.n_train for a in ranking.arms for s in a.scores} == {32}
    table = rows(ranking.csv)
    assert [row["arm"] for row in table] == [a.arm for a in ranking.arms]
    assert [float(row["error_mean"]) for row in table] == means
    state = ranking.json.read_bytes()
    assert sparse.rank_front(seeds=2).arms == ranking.arms
    assert ranking.json.read_bytes() == state


def test_rank_front_checks_its_arguments(results):
    sparse = Sparse(**arguments(results, r1=3, r2=0, r3=0, morphisms=False))
    with pytest.raises(ConfigError, match=r"rank_front\(\.\.\.\) seeds: expected an integer of 1 or more"):
        sparse.rank_front(seeds=0)
    with pytest.raises(ConfigError, match=r"unknown argument 'seed_s' \(did you mean 'seeds'\?\)"):
        sparse.cross_test("1_0", seed_s=3)
    with pytest.raises(ConfigError, match="missing argument arm"):
        sparse.cross_test()


@pytest.mark.parametrize("form", [list, np.array, torch.tensor])
def test_groups_come_in_three_parts_or_one_behind_the_other(tmp_path, form):
    flat = [k % 4 for k in range(96)]
    three = [form(flat[k : k + 32]) for k in (0, 32, 64)]
    for groups in (form(flat), three, tuple(three)):
        setup = cross(tmp_path, groups=groups).setup
        assert setup.groups == tuple(map(str, flat))


def test_the_rigged_net_is_as_the_test_above_says():
    assert RiggedNet({}, 2, (1,))(torch.randn(5, 1)).argmax(dim=1).tolist() == [0] * 5
    assert len(rigged_groups()) == 12
