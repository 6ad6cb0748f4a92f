"""The documentation as a site: it builds without a warning, and no page loads anything from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//[^>]*>"
    r"|<link\b(?![^>]*canonical)[^>]*\bhref=\"?(?:https?:)?//[^>]*>"
    r"|url\([\"']?(?:https?:)?//[^)]*\)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("built") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_built_and_in_the_navigation(site):
    index = (site / "index.html").read_text()
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert pages == {page.stem for page in site.glob("*.html")} - {"404"}
    for page in pages:
        assert re.search(rf'<a href="(?:\./)?{page}\.html" class="md-nav__link', index), page


def test_no_page_loads_anything_from_elsewhere(site):
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        found = LOADED.search(path.read_text())
        assert found is None, f"{path.relative_to(site)}: {found[0]}"


@pytest.mark.parametrize(
    "ill",
    [
        '<script src="https://cdn.example/x.js">',
        "<link href=https://fonts.example/css rel=stylesheet>",
        "src: url(//fonts.example/x.woff)",
    ],
)
def test_something_from_elsewhere_would_be_found(ill):
    assert LOADED.search(ill)


def test_the_reference_has_the_public_names(site):
    text = (site / "reference.html").read_text()
    for name in ("sparse.sparse.Sparse", "candidate.Arm", "errors.SpaceError", "search.strategy.Strategy"):
        assert f'id="sparsemod.{name}"' in text
