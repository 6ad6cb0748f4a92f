"""The pictures: which files there are for which runs, and that they are what they say."""

import sys

import pytest
from report_runs import completed, failed, random_evaluations, write_run

from sparsemod.errors import ConfigError
from sparsemod.report.plots import save_plots
from sparsemod.report.run_data import read_run

pytest.importorskip("matplotlib")

NAMES = ["front", "stages", "hypervolume", "parallel"]


def test_four_plots_each_as_png_and_svg(tmp_path):
    write_run(tmp_path / "run", random_evaluations(20))
    paths = save_plots(read_run(tmp_path / "run"), tmp_path / "new" / "figures")
    assert [p.name for p in paths] == [f"{n}.{kind}" for n in NAMES for kind in ("png", "svg")]
    for path in paths:
        start = path.read_bytes()[:200]
        assert start.startswith(b"\x89PNG") if path.suffix == ".png" else b"<?xml" in start
    front = (tmp_path / "new" / "figures" / "front.svg").read_text()
    for label in ("error (%)", "flash (kB)", "RAM (kB)", "latency (ms)", "sobol", "bayes", "morph"):
        assert label in front
    assert "reference: error 1" in (tmp_path / "new" / "figures" / "hypervolume.svg").read_text()


@pytest.mark.parametrize(
    ("evaluations", "names"),
    [
        ([completed()], NAMES),
        ([completed(0.0), completed(0.0)], NAMES),
        ([completed(float("nan")), failed()], ["hypervolume"]),
        ([failed()], ["hypervolume"]),
        ([None], []),
        ([], []),
    ],
)
def test_little_to_show_is_shown(tmp_path, evaluations, names):
    write_run(tmp_path, evaluations, objectives=("error",))
    paths = save_plots(read_run(tmp_path), tmp_path / "figures")
    assert [p.stem for p in paths][::2] == names


def test_the_same_run_gives_the_same_files(tmp_path):
    write_run(tmp_path, random_evaluations(12))
    run = read_run(tmp_path)
    first, second = save_plots(run, tmp_path / "a"), save_plots(run, tmp_path / "b")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_without_matplotlib_one_line_names_the_extra(tmp_path, monkeypatch):
    write_run(tmp_path, [completed()])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparsemod\[report\]'"):
        save_plots(read_run(tmp_path), tmp_path / "figures")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    write_run(tmp_path, [completed()])
    with pytest.raises(ConfigError, match=r"made\.csv: cannot be made"):
        save_plots(read_run(tmp_path), tmp_path / "made.csv")
