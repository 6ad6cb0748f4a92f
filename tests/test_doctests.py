"""The examples in the docstrings are right."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    ".".join(p.relative_to(ROOT).with_suffix("").parts)
    for p in sorted((ROOT / "sparsemod").rglob("*.py"))
    if ">>>" in p.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name):
    result = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted
    assert not result.failed
