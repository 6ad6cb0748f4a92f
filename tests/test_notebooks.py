"""The notebooks run from top to bottom, on a run of a few arms, and are stored without outputs."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_a_notebook_is_stored_without_outputs(path):
    for cell in json.loads(path.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_inspect_results_runs(tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    example = tmp_path / "examples" / "digits"
    shutil.copytree(ROOT / "examples" / "digits", example, ignore=shutil.ignore_patterns("results*", "__*"))
    short = (example / "short.cfg").read_text()
    tiny = re.sub(r"^(r[123]|epochs[123]) = \d+$", r"\1 = 1", short, flags=re.MULTILINE)
    (example / "short.cfg").write_text(f"{tiny}\nworkers = 1\n")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(ROOT / "notebooks" / "inspect_results.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path / "notebooks"}}
    )
    client.execute()
    results = example / "results-short"
    assert (results / "digits.csv").is_file()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in shown) == 2
    texts = [output["data"]["text/plain"] for output in shown if "text/plain" in output.get("data", {})]
    assert "learning_rate" in "".join(texts)
    assert "fully_connected" in texts[-1]
    assert "weight_bytes" in texts[-1]
    printed = "".join(output.get("text", "") for output in shown)
    assert "weights, " in printed
    assert "the same as value: True" in printed
    promised, had = re.search(r"(\d+) bytes of flash; the arm has (\d+)", printed).groups()
    assert promised == had
