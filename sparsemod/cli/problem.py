"""The search that a user's script makes."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sparsemod.errors import ConfigError, user_code

if TYPE_CHECKING:
    from sparsemod.sparse.sparse import Sparse

__all__ = ["made_by"]


@contextlib.contextmanager
def made_by(script: Path, option: str = "--problem", config: Path | None = None) -> Iterator[Sparse]:
    """Import a script in its folder, where it finds its files, and yield what its `make_sparse` returns.

    Args:
        script: The script.
        option: The option or argument that named it, for errors.
        config: The argument of `make_sparse`, an absolute path; None calls it without one.

    Raises:
        ConfigError: There is no such file, it has no function `make_sparse`, or that returns something else.
        CandidateError: It raised.
    """
    if not script.is_file():
        raise ConfigError(f"{option}: {script}: no such file")
    with contextlib.chdir(script.parent):
        yield _made(script.name, option, () if config is None else (str(config),))


def _made(script: str, option: str, arguments: tuple[str, ...]) -> Sparse:
    from sparsemod.sparse.sparse import Sparse

    path = Path(script)
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise ConfigError(f"{option}: expected a Python script, got {script}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))
    with user_code(script):
        spec.loader.exec_module(module)
        make = getattr(module, "make_sparse", None)
        sparse = make(*arguments) if callable(make) else None
    if not isinstance(sparse, Sparse):
        got = "there is none" if make is None else f"got {type(sparse).__name__}"
        raise ConfigError(
            f"{script}: expected a function make_sparse() that returns the Sparse object, {got}"
        )
    return sparse
