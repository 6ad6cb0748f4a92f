"""Every code block of the documentation runs: titled ones are files, `main.py` is started."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|ini)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(p for p in (ROOT / "docs").glob("*.md") if BLOCK.search(p.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_blocks_of_a_page_run_in_order(page, tmp_path):
    if "from lightning" in page.read_text():
        pytest.importorskip("lightning")
    loose = []
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
    }

    def start(script):
        done = subprocess.run(
            [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{page.name}: {script}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"

    for language, title, code in BLOCK.findall(page.read_text()):
        if title:
            (tmp_path / title).write_text(code)
            if title == "main.py":
                start(title)
        elif language == "python":
            loose.append(code)
    if loose:
        (tmp_path / "loose_blocks.py").write_text("\n".join(loose))
        start("loose_blocks.py")
