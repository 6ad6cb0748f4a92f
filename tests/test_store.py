"""The files of a run: what is written where, in which order, and what is left when a write fails."""

import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparsemod.errors import StoreError
from sparsemod.store import Store


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results", "mnist") as opened:
        yield opened


def names(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != ".lock")


def test_the_documented_files_are_where_they_are_documented(store, tmp_path):
    store.put_weights("12_0", b"weights")
    store.save(b"{}", "arm_name\n")
    store.write_run({"seed": 3})
    assert names(tmp_path / "results") == ["mnist.csv", "mnist.json", "models/12_0.safetensors", "run.json"]
    assert (tmp_path / "results" / "mnist.csv").read_text() == "arm_name\n"


def test_what_was_written_is_read_back(store):
    store.put_weights("0_0", b"\x00\xff")
    store.save(b'{"a":1}', "x,y\n1,2\n")
    store.write_run({"seed": 3, "seconds": {"sobol": 1.5}})
    assert store.weights("0_0") == b"\x00\xff"
    assert store.read() == b'{"a":1}'
    assert store.read_table() == "x,y\n1,2\n"
    assert store.read_run() == {"seed": 3, "seconds": {"sobol": 1.5}, "name": "mnist"}


def test_what_is_not_there_is_none(tmp_path):
    store = Store(tmp_path / "nowhere", "mnist")
    assert (store.read(), store.read_table(), store.read_run(), store.weights("0_0")) == (
        None,
        None,
        None,
        None,
    )
    assert not (tmp_path / "nowhere").exists()


def test_reading_goes_on_beside_a_run(store, tmp_path):
    store.save(b"{}", "")
    assert Store(tmp_path / "results", "mnist").read() == b"{}"


def test_retain_deletes_the_models_of_all_other_arms_and_nothing_else(store):
    for arm in ("0_0", "1_0", "10_0"):
        store.put_weights(arm, b"w")
    (store.models_path / "0_0.tflite").write_bytes(b"t")
    (store.models_path / "1_0.tflite").write_bytes(b"t")
    store.put_layers("0_0", b"[]")
    store.put_layers("1_0", b"[]")
    (store.models_path / "1_0.notes.json").write_text("mine")
    (store.models_path / "2_0.notes.json").write_text("mine")
    (store.models_path / "notes.txt").write_text("mine")
    (store.models_path / "teacher.safetensors").write_bytes(b"mine")
    store.retain({"1_0"})
    assert names(store.models_path) == [
        "1_0.layers.json",
        "1_0.notes.json",
        "1_0.safetensors",
        "1_0.tflite",
        "2_0.notes.json",
        "notes.txt",
        "teacher.safetensors",
    ]


def test_a_parent_that_left_the_front_keeps_its_weights_but_no_file_for_a_chip(store):
    for arm in ("0_0", "1_0", "2_0"):
        store.put_weights(arm, b"w")
        store.put_tflite(arm, b"t")
    store.retain({"1_0"}, {"2_0"})
    assert names(store.models_path) == ["1_0.safetensors", "1_0.tflite", "2_0.safetensors"]


def test_files_for_the_chip_lie_beside_the_weights(store):
    store.put_tflite("1_0", b"tflite")
    assert (store.models_path / "1_0.tflite").read_bytes() == b"tflite"
    assert (store.tflite("1_0"), store.tflite("2_0")) == (b"tflite", None)
    with pytest.raises(StoreError, match="name of an arm"):
        store.put_tflite("../1_0", b"")


def test_the_layer_table_lies_beside_the_weights(store):
    store.put_layers("1_0", b"[]")
    assert (store.models_path / "1_0.layers.json").read_bytes() == b"[]"
    assert (store.layers("1_0"), store.layers("2_0")) == (b"[]", None)


@pytest.mark.parametrize(
    "arm", ["../../etc/passwd", "0_0/../x", "0_0.safetensors", "", "a_0", "0_0\n", "٣_0"]
)
def test_only_the_name_of_an_arm_becomes_a_file_name(store, arm):
    with pytest.raises(StoreError, match="expected the name of an arm like '12_0'"):
        store.put_weights(arm, b"")
    with pytest.raises(StoreError, match="expected the name of an arm like '12_0'"):
        store.put_layers(arm, b"")
    for read in (store.weights, store.layers):
        with pytest.raises(StoreError):
            read(arm)


@pytest.mark.parametrize("name", ["", "run", "Run", "a/b", "..", ".hidden", "a\n", " a", "a ", "x" * 101])
def test_only_a_plain_name_names_a_run(tmp_path, name):
    with pytest.raises(StoreError, match="expected a plain file name"):
        Store(tmp_path, name)


@pytest.mark.parametrize("name", ["mnist", "cnn_cost", "Run 2", "a.b-c", "größe"])
def test_ordinary_names_are_taken(tmp_path, name):
    assert Store(tmp_path, name).json_path == tmp_path / f"{name}.json"


def test_nothing_is_written_outside_the_with_block(tmp_path):
    with pytest.raises(RuntimeError, match="with block"):
        Store(tmp_path, "mnist").save(b"", "")


# Order and failures


def test_a_save_writes_the_results_file_before_the_table(store, monkeypatch):
    order = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: (order.append(to.name), replace(self, to))[1])
    store.save(b"1", "1")
    assert order == ["mnist.json", "mnist.csv"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_each_file_and_its_folder_are_synced(store, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())), fsync(fd))[1]
    )
    store.put_weights("3_0", b"w")
    models = str(store.models_path.resolve())
    assert synced == [f"{models}/.3_0.safetensors.partial", models]


class Killed(BaseException):
    """What no handler may catch: the process is gone."""


WATCHED = (
    (os, "fsync"),
    (os, "open"),
    (Path, "replace"),
    (Path, "rename"),
    (Path, "unlink"),
    (Path, "mkdir"),
    (Path, "open"),
)


def strike(monkeypatch, position, failure):
    """Let the file operation number `position` fail; the list returned is empty once it has."""
    left = [None] * (position + 1)

    def counted(operation):
        def run(*args, **kwargs):
            if left:
                left.pop()
                if not left:
                    raise failure
            return operation(*args, **kwargs)

        return run

    for owner, name in WATCHED:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return left


def step(root, index):
    """One step of a run: the front is the last two arms. The text says which weights must exist."""
    front = [f"{i}_0" for i in (index - 1, index) if i >= 0]
    with Store(root, "mnist") as store:
        store.put_weights(f"{index}_0", f"weights of {index}_0".encode() * 100)
        store.save(json.dumps({"step": index, "front": front}).encode(), f"table of {index}\n")
        store.retain(front)
        store.write_run({"step": index})


def check(root, newest):
    """The state is that before the step or after it, and whole; a new step works."""
    with Store(root, "mnist") as store:
        state = json.loads(store.read())
        assert state["step"] in (newest - 1, newest)
        for arm in state["front"]:
            assert store.weights(arm) == f"weights of {arm}".encode() * 100
        assert store.read_table() in (f"table of {state['step']}\n", f"table of {state['step'] - 1}\n")
        assert store.read_run()["step"] in (newest - 1, newest)
        assert not [n for n in names(root) if n.endswith(".partial")]
    step(root, newest)
    assert sorted(p.name for p in (root / "models").iterdir()) == [
        f"{newest - 1}_0.safetensors",
        f"{newest}_0.safetensors",
    ]


@pytest.mark.parametrize(
    "failure", [Killed(), OSError(errno.ENOSPC, "No space left on device")], ids=["kill", "full"]
)
def test_whichever_operation_a_save_dies_in_the_state_is_whole(tmp_path, failure):
    position, expected = 0, Killed if isinstance(failure, Killed) else StoreError
    while True:
        root = tmp_path / str(position)
        step(root, 0)
        step(root, 1)
        with pytest.MonkeyPatch.context() as patch:
            left = strike(patch, position, failure)
            try:
                step(root, 2)
                died = False
            except expected as error:
                died = True
                if expected is StoreError:
                    assert "No space left on device" in str(error) and "\n" not in str(error)
        check(root, 2)
        if not died and left:
            break
        position += 1
    assert position > 15


def test_a_failed_write_keeps_the_former_state_and_leaves_nothing_behind(store, monkeypatch):
    store.save(b"old", "old")

    def full(self, to):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(StoreError, match=r"mnist\.json: cannot be written: No space left on device"):
            store.save(b"new", "new")
    assert (store.read(), store.read_table()) == (b"old", "old")
    assert names(store.root) == ["mnist.csv", "mnist.json"]


def test_a_really_full_disk_is_one_line(tmp_path, monkeypatch):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with Store(tmp_path, "mnist") as store:
        store.save(b"old", "old")
        (tmp_path / ".mnist.json.partial").symlink_to("/dev/full")
        with pytest.raises(StoreError, match="No space left on device"):
            store.save(b"new", "new")
        assert store.read() == b"old"


def test_a_root_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreError, match="file: cannot be used: ") as caught,
        Store(tmp_path / "file", "mnist"),
    ):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_one_line(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot be used: Permission denied"), Store(tmp_path, "mnist"):
        pass


def test_a_read_only_file_system_is_one_line(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match="cannot be used: Read-only file system"), Store(tmp_path, "mnist"):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"[" * 100_000, b"\xff"])
def test_a_damaged_run_file_is_one_line(tmp_path, content):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"run\.json: is damaged"):
        Store(tmp_path, "mnist").read_run()


def test_left_overs_of_a_killed_run_go_and_other_files_stay(tmp_path):
    (tmp_path / "models").mkdir()
    ours = [
        ".mnist.json.partial",
        ".mnist.csv.partial",
        ".run.json.partial",
        "models/.3_0.safetensors.partial",
        "models/.3_0.layers.json.partial",
    ]
    for name in [*ours, ".other.partial", "notes.txt"]:
        (tmp_path / name).write_text("x")
    with Store(tmp_path, "mnist"):
        assert names(tmp_path) == [".other.partial", "notes.txt"]


# Earlier results


def test_earlier_results_are_moved_aside_one_folder_a_time(store):
    assert store.archive() is None
    for number in (1, 2):
        store.put_weights("0_0", b"w")
        store.save(f"{number}".encode(), "t")
        store.write_run({"seed": number})
        assert store.archive() == store.root / f"previous-{number}"
        assert (store.read(), store.read_table(), store.read_run(), store.weights("0_0")) == (
            None,
            None,
            None,
            None,
        )
    moved = ["mnist.csv", "mnist.json", "models/0_0.safetensors", "run.json"]
    assert names(store.root) == [f"previous-{n}/{name}" for n in (1, 2) for name in moved]
    assert (store.root / "previous-2" / "mnist.json").read_bytes() == b"2"
    store.put_weights("0_0", b"w")


def test_a_new_archive_never_takes_the_place_of_an_old_one(store):
    (store.root / "previous-7").mkdir()
    store.save(b"{}", "")
    assert store.archive() == store.root / "previous-8"


def test_wherever_archiving_is_killed_nothing_is_lost_and_nothing_is_mixed(tmp_path):
    moved = ["mnist.csv", "mnist.json", "models/0_0.safetensors", "models/1_0.safetensors", "run.json"]
    position, outcomes = 0, set()
    while True:
        root = tmp_path / str(position)
        step(root, 0)
        step(root, 1)
        with Store(root, "mnist") as store, pytest.MonkeyPatch.context() as patch:
            left = strike(patch, position, Killed())
            try:
                store.archive()
                died = False
            except Killed:
                died = True
        with Store(root, "mnist") as store:
            found = names(root)
            outcomes.add(store.read() is None)
            assert found in (moved, [f"previous-1/{name}" for name in moved])
        if not died and left:
            break
        position += 1
    assert outcomes == {True, False}


# The lock


def test_two_stores_cannot_be_in_one_root_at_once(store):
    with (
        pytest.raises(StoreError, match=f"results: in use by process {os.getpid()}$"),
        Store(store.root, "mnist"),
    ):
        pass


def test_another_name_cannot_be_in_the_root_at_once_either(store):
    with pytest.raises(StoreError, match="in use by process"), Store(store.root, "cifar"):
        pass


def test_the_lock_is_given_back_at_the_end_and_after_an_exception(tmp_path):
    with Store(tmp_path, "mnist"):
        pass
    with pytest.raises(KeyError), Store(tmp_path, "mnist"):
        raise KeyError
    with Store(tmp_path, "mnist") as store:
        store.save(b"", "")


def test_a_root_belongs_to_the_run_that_it_holds(tmp_path):
    with Store(tmp_path, "mnist") as store:
        store.write_run({})
    with (
        pytest.raises(StoreError, match=r"holds the run 'mnist'; 'cifar' needs a root of its own"),
        Store(tmp_path, "cifar"),
    ):
        pass
    with Store(tmp_path, "mnist"):
        pass


HOLDER = """
import sys, time
from sparsemod.store import Store
with Store(sys.argv[1], "mnist"):
    print("in", flush=True)
    time.sleep(60)
"""

WRITER = """
import json, sys
from sparsemod.store import Store
root = sys.argv[1]
with Store(root, "mnist") as store:
    state = store.read()
    step = json.loads(state)["step"] if state else 0
    print("in", flush=True)
    while True:
        step += 1
        arm, front = f"{step}_0", [f"{i}_0" for i in range(max(step - 4, 1), step + 1)]
        store.put_weights(arm, arm.encode() * 20_000)
        results = {"step": step, "front": front, "padding": "x" * 100_000}
        store.save(json.dumps(results).encode(), f"{step}\\n" * 5_000)
        store.retain(front)
"""


def started(code, root):
    process = subprocess.Popen([sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "in\n"
    return process


def test_the_message_names_the_other_process_and_its_death_gives_the_root_free(tmp_path):
    process = started(HOLDER, tmp_path)
    try:
        with pytest.raises(StoreError, match=f"in use by process {process.pid}$"), Store(tmp_path, "mnist"):
            pass
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    with Store(tmp_path, "mnist"):
        pass


def test_a_run_killed_at_any_moment_leaves_whole_files_and_goes_on(tmp_path):
    """Killed at moments that fall anywhere in its writes, over and over in the same folder."""
    last = 0
    for kill in range(12):
        process = started(WRITER, tmp_path)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02 + 0.013 * kill)
        process.kill()
        process.wait()
        process.stdout.close()
        with Store(tmp_path, "mnist") as store:
            content = store.read()
            if content is None:
                continue
            state = json.loads(content)
            assert state["step"] >= last
            last = state["step"]
            for arm in state["front"]:
                assert store.weights(arm) == arm.encode() * 20_000
            table = store.read_table()
            assert table is None or (len({*table.splitlines()}), len(table.splitlines())) == (1, 5_000)
    assert last > 0
