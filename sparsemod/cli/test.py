"""`sparsemod test`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsemod.cli.problem import made_by
from sparsemod.errors import ConfigError

__all__ = ["test"]


class SplitName(StrEnum):
    """How the data are split."""

    loso = "loso"
    kfold = "kfold"
    stratified = "stratified"
    groups = "groups"


def test(
    root: Annotated[Path, typer.Argument(help="The results folder.")],
    problem: Annotated[Path, typer.Option(help="The script whose make_sparse() returns the search.")] = Path(
        "main.py"
    ),
    arm: Annotated[
        str | None, typer.Option(help="The arm to train anew over cross splits, for example 12_0.")
    ] = None,
    front: Annotated[
        bool, typer.Option("--front", help="Rank the arms of the front, each trained with several seeds.")
    ] = False,
    split: Annotated[
        SplitName | None,
        typer.Option(
            help="loso: leave one subject out (the default with groups); groups: folds of whole subjects; "
            "stratified (the default without groups); kfold."
        ),
    ] = None,
    folds: Annotated[int | None, typer.Option(help="Folds of all but loso; 5 by default.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Repetitions; 1 by default, 5 with --front.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Of each training; by default the most of the search's stages.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that train; 1 by default.")] = None,
) -> None:
    """Train an arm anew over cross splits and score it, or rank the arms of the front.

    Subjects are the argument groups of the script's Sparse object. A test that was stopped goes on.

    Example: sparsemod test results --arm 12_0 --split loso
    """
    given: dict[str, Any] = {"n_splits": folds, "seeds": seeds, "epochs": epochs, "workers": workers}
    given["split"] = None if split is None else split.value
    given = {key: value for key, value in given.items() if value is not None}
    if front and (arm is not None or split is not None or folds is not None):
        raise ConfigError("--front: trains on the search's own split; leave out --arm, --split and --folds")
    root = root.resolve()
    with made_by(problem) as sparse:
        if front:
            sparse.rank_front(root=root, **given)
        else:
            sparse.cross_test(arm, root=root, **given)


test.__test__ = False  # type: ignore[attr-defined]  # test runners collect functions by this name
