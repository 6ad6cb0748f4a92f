"""The ready configuration files load, and the full one shows every key."""

import re
from pathlib import Path

import pytest

from sparsemod import config
from sparsemod.config import RunConfig, TargetConfig, configuration
from sparsemod.measure.targets import resolve_target

FILES = sorted((Path(__file__).parents[1] / "configs").glob("*.cfg"))
BY_NAME = {path.stem: path for path in FILES}
DOCUMENTED_TRAIN = """
    r1 r2 r3 epochs1 epochs2 epochs3 name root objectives batch_size debug flops quant_scheme morphisms
    pruning splitter
"""
DOCUMENTED_TEST = "pruning splitter quant_scheme objectives name root epochs arm"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_file_loads_as_a_search(path):
    assert len(RunConfig.from_file(path).stages) == 3


@pytest.mark.parametrize("name", ["minimal", "full"])
def test_file_loads_as_a_test_with_the_switch_off(name, tmp_path):
    text = BY_NAME[name].read_text()
    assert "train = true" in text
    path = tmp_path / "config.cfg"
    path.write_text(text.replace("train = true", "train = false"))
    assert config.TestConfig.from_file(path).arm == "779_0"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_board_of_the_file_is_known(path):
    run = RunConfig.from_file(path)
    board = resolve_target(run.target, run.flops, run.target_spec)
    assert board.clock_hz == {"minimal": 80e6, "full": 48e6, "small-mcu": 32e6, "large-mcu": 480e6}[path.stem]


def test_minimal_file_has_the_documented_keys_and_no_other():
    path = BY_NAME["minimal"]
    assert set(configuration("DEFAULT", path)) == {"train"}
    assert set(configuration("TRAIN", path)) - {"train"} == set(DOCUMENTED_TRAIN.split())
    assert set(configuration("TEST", path)) - {"train"} == set(DOCUMENTED_TEST.split())


def test_minimal_file_works_with_the_documented_conversions():
    args = configuration("TRAIN", BY_NAME["minimal"])
    assert int(args["R1"]) == 20
    assert int(args["FLOPS"]) == 80_000_000
    assert config.bool_converter(args["MORPHISMS"]) is True


def test_full_file_shows_every_key():
    text = BY_NAME["full"].read_text()
    _, train, target, test = re.split(r"^\[(?:TRAIN|TARGET|TEST)\]$", text, flags=re.MULTILINE)
    for section, model in ((train, RunConfig), (target, TargetConfig), (test, config.TestConfig)):
        shown = set(re.findall(r"^(?:# )?(\w+) = ", section, flags=re.MULTILINE))
        assert shown == set(model.keys()) - {"target_spec"}


def test_small_and_large_mcu():
    small, large = (RunConfig.from_file(BY_NAME[f"{size}-mcu"]) for size in ("small", "large"))
    assert small.target_spec.flash_bytes == 65536
    assert small.constraints.model_size == 32768
    assert (large.target, large.runtime) == ("STM32H743", "tflite-micro")
