"""Reading config.cfg: what the format allows, and the one line about everything that it does not."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsemod import config
from sparsemod.config import RunConfig, configuration
from sparsemod.errors import ConfigError

FULL = (Path(__file__).parents[1] / "configs" / "full.cfg").read_text()
MINIMAL = (Path(__file__).parents[1] / "configs" / "minimal.cfg").read_text()


@pytest.fixture
def cfg(tmp_path, monkeypatch):
    """Write config.cfg into the current folder and return its name."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        Path("config.cfg").write_bytes(text if isinstance(text, bytes) else text.encode())
        return "config.cfg"

    return write


def line(path, read=RunConfig.from_file):
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_keys_in_any_case_and_values_as_written(cfg):
    cfg("[TRAIN]\nR1: 010\nName = %(x)s My Search\n")
    args = configuration("TRAIN")
    assert args["R1"] == args["r1"] == "010"
    assert args["NAME"] == "%(x)s My Search"
    assert dict(args) == {"r1": "010", "name": "%(x)s My Search"}
    assert "R1" in args
    assert "r2" not in args
    assert args.get("r2", "5") == "5"
    assert len(args) == 2


def test_a_key_that_is_not_there_is_one_line_when_it_is_asked_for(cfg):
    args = configuration("TRAIN", cfg("[TRAIN]\nepochs1 = 3\n"))
    with pytest.raises(ConfigError) as caught:
        args["EPOCH1"]
    assert str(caught.value) == "config.cfg [TRAIN]: no key 'EPOCH1' (did you mean 'epochs1'?)"
    with pytest.raises(KeyError):
        args["EPOCH1"]


def test_default_keys_show_in_every_section(cfg):
    path = cfg("[DEFAULT]\ntrain = True\nname = a\n[TRAIN]\nname = b\n[TEST]\n")
    assert configuration("DEFAULT", path)["TRAIN"] == "True"
    assert dict(configuration("TRAIN", path)) == {"train": "True", "name": "b"}
    assert configuration("test", path)["name"] == "a"
    assert dict(configuration("DEFAULT", cfg("[TRAIN]\n"))) == {}


def test_documented_comment_behind_a_header_and_comments_behind_values(cfg):
    path = cfg("[TRAIN] # train mode configuration\nr1 = 3  # rounds\nroot = a#b\n; whole line\n")
    assert dict(configuration("TRAIN", path)) == {"r1": "3", "root": "a#b"}


def test_byte_order_mark_and_windows_line_ends(cfg):
    path = cfg(b"\xef\xbb\xbf[TRAIN]\r\nr1 = 3\r\n")
    assert dict(configuration("TRAIN", path)) == {"r1": "3"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "config.cfg: no section [TRAIN], found none"),
        ("[TEST]\n", "config.cfg: no section [TRAIN], found [TEST]"),
        ("r1 = 3\n", "config.cfg line 1: expected a section such as [TRAIN] first, got 'r1 = 3'"),
        ("[TRAIN]\nr1\n", "config.cfg line 2: expected 'key = value' or a section, got 'r1\\n'"),
        ("[TRAIN]\nr1 = 1\nR1 = 2\n", "config.cfg line 3: key 'r1' is there twice in [TRAIN]"),
        ("[TRAIN]\n[TRAIN]\n", "config.cfg line 2: section [TRAIN] is there twice"),
        ("[DEFAULT]\n[DEFAULT]\n", "config.cfg line 2: section [DEFAULT] is there twice"),
        ("[TRAIN]\n[train]\n", "config.cfg: section [TRAIN] is there twice"),
        (
            "[TRIAN]\n",
            "config.cfg: unknown section [TRIAN], expected [DEFAULT], [TRAIN], [TEST] or [TARGET]",
        ),
        (b"[TRAIN]\nname = \xff\n", "config.cfg: expected UTF-8 text, but byte 15 is not"),
        ("[TRAIN]\n= 3\n", "config.cfg line 2: expected 'key = value' or a section, got '= 3\\n'"),
    ],
)
def test_what_is_no_configuration_file(cfg, text, said):
    path = cfg(text)
    assert line(path) == said
    assert line(path, lambda p: configuration("TRAIN", p)) == said


def test_unreadable_paths(tmp_path):
    assert line(tmp_path / "none.cfg") == f"{tmp_path / 'none.cfg'}: no such file"
    assert line(tmp_path).startswith(f"{tmp_path}: cannot be read: ")
    assert "cannot be the path" in line("a\0b")
    assert "cannot be the path" in line(3)


def test_no_such_section():
    with pytest.raises(ConfigError, match=r"no section \[TRIAN\], found \[DEFAULT\], \[TRAIN\], \[TEST\]$"):
        configuration("TRIAN", Path(__file__).parents[1] / "configs" / "minimal.cfg")


def test_file_section_and_key_are_named(cfg):
    assert line(cfg(MINIMAL.replace("r1 = 20", "r1 = ten"))) == (
        "config.cfg [TRAIN] r1: expected an integer of 0 or more, got 'ten'"
    )
    assert line(cfg(MINIMAL.replace("r2 = 60\n", ""))) == "config.cfg [TRAIN]: missing key r2"
    assert line(cfg(MINIMAL.replace("r1 =", "rounds1 ="))) == "config.cfg [TRAIN]: unknown key 'rounds1'"
    assert line(cfg(MINIMAL.replace("epochs1", "epoch1"))) == (
        "config.cfg [TRAIN]: unknown key 'epoch1' (did you mean 'epochs1'?)"
    )


def test_the_whole_file_is_checked(cfg):
    assert line(cfg(MINIMAL + "target = x\n")) == "config.cfg [TEST]: unknown key 'target'"
    assert line(cfg(MINIMAL.replace("train = true", "trian = true"))) == (
        "config.cfg [DEFAULT]: unknown key 'trian' (did you mean 'train'?)"
    )
    assert line(cfg(MINIMAL.replace("train = true", "train = perhaps"))) == (
        "config.cfg [DEFAULT] train: expected true or false, got 'perhaps'"
    )
    assert line(cfg(FULL.replace("ram_bytes = 65536", "ram_bytes = 64k"))) == (
        "config.cfg [TARGET] ram_bytes: expected an integer of 1 or more, got '64k'"
    )
    assert "target_spec" in line(cfg(MINIMAL.replace("[TEST]", "target_spec = x\n[TEST]")))


def test_an_arm_that_is_not_known_yet_does_not_hold_back_a_search(cfg):
    assert RunConfig.from_file(cfg(MINIMAL.replace("arm = 779_0", "arm =")))


def test_the_switch_decides_between_search_and_test(cfg):
    off = cfg(MINIMAL.replace("train = true", "train = False"))
    assert line(off) == (
        "config.cfg [DEFAULT] train: expected true for a search of [TRAIN], got false, which runs [TEST]"
    )
    assert config.TestConfig.from_file(off).arm == "779_0"
    on = cfg(MINIMAL)
    assert "which runs [TRAIN]" in line(on, config.TestConfig.from_file)
    neither = cfg(MINIMAL.replace("train = true", ""))
    assert RunConfig.from_file(neither)
    assert config.TestConfig.from_file(neither)


def test_shared_keys_may_stand_in_default(cfg):
    text = MINIMAL.replace("name = search\n", "").replace("train = true", "train = true\nname = shared")
    assert RunConfig.from_file(cfg(text)).name == "shared"


def test_a_target_does_not_take_its_name_from_default(cfg):
    text = FULL.replace("train = true\n", "train = true\nname = shared\n").replace("name = sensor node\n", "")
    assert line(cfg(text)) == "config.cfg [TARGET]: missing key name"


def test_keys_from_python_replace_those_of_the_file(cfg):
    assert RunConfig.from_file(cfg(MINIMAL), r1=1, seed=5).seed == 5


def written(path, text):
    path.write_bytes(text)
    return path


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "config.cfg"


def configuration_or_one_line(path):
    for read in (RunConfig.from_file, config.TestConfig.from_file, lambda p: configuration("TRAIN", p)):
        try:
            read(path)
        except ConfigError as error:
            assert len(str(error).splitlines()) == 1, str(error)


@given(data=st.binary(max_size=300))
def test_random_bytes(scratch, data):
    configuration_or_one_line(written(scratch, data))


FRAGMENTS = r"""
    [TRAIN] [DEFAULT] [TARGET]\n [ ] = : \n \n\x20 # ; \x20 r1 name =5\n \t \r \x00 \x85 \u2028 \f \v rem\x20
    é ~ , %(r1)s ${a} root constraints model_size
"""
fragments = st.sampled_from([f.encode("latin-1").decode("unicode_escape") for f in FRAGMENTS.split()])


@given(text=st.lists(fragments | st.text(max_size=3), max_size=40).map("".join))
def test_random_text_in_the_format(scratch, text):
    configuration_or_one_line(written(scratch, text.encode(errors="surrogatepass")))


@given(seed=st.integers(0, 2**32), n=st.integers(1, 6))
def test_mutated_files(scratch, seed, n):
    rng = random.Random(seed)
    text = bytearray(rng.choice([FULL, MINIMAL]).encode())
    lines = text.split(b"\n")
    for _ in range(n):
        match rng.randrange(5):
            case 0:
                text[rng.randrange(len(text))] = rng.randrange(256)
            case 1:
                del text[(at := rng.randrange(len(text))) : at + rng.randrange(1, 30)]
            case 2:
                text[(at := rng.randrange(len(text))) : at] = rng.choice(lines)
            case 3:
                text[(at := rng.randrange(len(text))) : at] = rng.choice(
                    [b"\n", b" ", b"=", b"[", b"]", b"#", b"\n  "]
                )
            case _:
                text[(at := rng.randrange(len(text))) : at] = bytes(rng.randrange(256) for _ in range(3))
    configuration_or_one_line(written(scratch, bytes(text)))
