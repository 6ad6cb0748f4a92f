"""The public names, and that asking for them is quick."""

import subprocess
import sys

import pytest

import sparsemod

NAMES = [
    "CandidateError",
    "ConfigError",
    "DataError",
    "ExecutorError",
    "ExhaustedError",
    "InfeasibleError",
    "ModelFileError",
    "RunResult",
    "SpaceError",
    "Sparse",
    "SparseExperiment",
    "SparsemodError",
    "StoreError",
    "UnsupportedOperatorError",
]


def test_the_public_names_are_these_and_exist():
    assert sparsemod.__all__ == NAMES
    for name in NAMES:
        assert getattr(sparsemod, name).__name__ == name
    assert set(NAMES) <= set(dir(sparsemod))
    with pytest.raises(AttributeError, match="has no attribute 'Sparce'"):
        _ = sparsemod.Sparce


def test_the_documented_imports_work():
    from sparsemod.sparse import Sparse, SparseExperiment
    from sparsemod.sparse.utils_data import bool_converter, configuration

    assert Sparse is sparsemod.Sparse
    assert SparseExperiment is sparsemod.SparseExperiment
    assert callable(bool_converter)
    assert callable(configuration)


def test_every_error_has_one_root():
    errors = [getattr(sparsemod, n) for n in NAMES if n.endswith("Error")]
    assert all(issubclass(e, sparsemod.SparsemodError) for e in errors)


def test_importing_sparsemod_loads_nothing_heavy():
    code = "import sparsemod, sys; print([m for m in ('torch', 'ax', 'pandas', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_uncaught_error_of_ours_is_one_line_and_exit_code_2():
    code = "import sparsemod; raise sparsemod.ConfigError('config.cfg [TRAIN] r1: expected a number')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "error: config.cfg [TRAIN] r1: expected a number\n")


def test_other_errors_keep_their_traceback():
    done = subprocess.run([sys.executable, "-c", "import sparsemod; 1 / 0"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
