"""Reading config.cfg: sections of strings, exactly as written."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from sparsemod.errors import ConfigError, nearest

__all__ = ["DEFAULT", "SECTIONS", "Section", "configuration", "read_sections"]

DEFAULT = "DEFAULT"
SECTIONS = (DEFAULT, "TRAIN", "TEST", "TARGET")


class _MissingKeyError(ConfigError, KeyError):
    """A section has no such key; also a `KeyError`, so that `in` and `get` work as in every mapping."""

    def __str__(self) -> str:
        return str(self.args[0])


class Section(Mapping[str, str]):
    """One section of a configuration file: keys in any case, values as written, [DEFAULT] included."""

    def __init__(self, values: Mapping[str, str], where: str) -> None:
        self._values = dict(values)
        self._where = where

    def __getitem__(self, key: str) -> str:
        try:
            return self._values[key.lower()]
        except KeyError:
            raise _MissingKeyError(f"{self._where}: no key '{key}'{nearest(key, self._values)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Section({self._values!r}, {self._where!r})"


def configuration(section: str, path: str | os.PathLike[str] = "config.cfg") -> Section:
    r"""Read one section of a configuration file.

    Values come as the strings that were written, without the spaces around them and without a comment that a
    ``#`` behind a space begins; what they should be is checked by `RunConfig`. As with `configparser`, the
    keys of [DEFAULT] show in every section that does not have them itself.

    Args:
        section: ``TRAIN``, ``TEST``, ``TARGET`` or ``DEFAULT``, in any case.
        path: The file.

    Raises:
        ConfigError: If the file cannot be read, is not in the format, or lacks the section. A key that the
            section lacks is a `ConfigError` too, when it is asked for.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "config.cfg")
        >>> _ = path.write_text("[TRAIN]\nR1: 10  # rounds\n")
        >>> args = configuration("TRAIN", path)
        >>> args["R1"], args["r1"]
        ('10', '10')
    """
    sections = read_sections(path)
    name = section.upper() if isinstance(section, str) else section
    if name == DEFAULT:
        return Section(sections.get(DEFAULT, {}), f"{path} [{DEFAULT}]")
    if name not in sections:
        found = ", ".join(f"[{s}]" for s in sections) or "none"
        raise ConfigError(f"{path}: no section [{section}], found {found}")
    return Section({**sections.get(DEFAULT, {}), **sections[name]}, f"{path} [{name}]")


def read_sections(path: str | os.PathLike[str]) -> dict[str, dict[str, str]]:
    """Return the keys (in lower case) and values of every section (in upper case), [DEFAULT] as one of them.

    Raises:
        ConfigError: If the file cannot be read, is not in the format, or has a section that is not known.
    """
    parser = configparser.ConfigParser(
        interpolation=None,
        inline_comment_prefixes=("#",),
        empty_lines_in_values=False,
        default_section="",  # no header can spell it, so [DEFAULT] is read like the others
    )
    try:
        parser.read_string(_read_text(path), source=str(path))
    except configparser.Error as error:
        raise ConfigError(f"{path}{_explain(error)}") from None
    sections: dict[str, dict[str, str]] = {}
    for written in parser.sections():
        name = written.strip().upper()
        if name not in SECTIONS:
            raise ConfigError(f"{path}: unknown section {_header(written)}, expected {_headers(SECTIONS)}")
        if name in sections:
            raise ConfigError(f"{path}: section [{name}] is there twice")
        sections[name] = dict(parser.items(written))
    return sections


def _read_text(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text, but byte {error.start} is not") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path!r}: cannot be the path of a configuration file: {error}") from None


def _explain(error: configparser.Error) -> str:
    """Say in one line what configparser found, and where."""
    if isinstance(error, configparser.MissingSectionHeaderError):
        return f" line {error.lineno}: expected a section such as [TRAIN] first, got {_line(error.line)}"
    if isinstance(error, configparser.DuplicateSectionError):
        return f" line {error.lineno}: section {_header(error.section)} is there twice"
    if isinstance(error, configparser.DuplicateOptionError):
        return f" line {error.lineno}: key '{error.option}' is there twice in {_header(error.section)}"
    if isinstance(error, configparser.ParsingError) and error.errors:
        number, line = error.errors[0]
        shown = line if line.startswith(("'", '"')) else repr(line)  # the parser hands over the line's repr
        return f" line {number}: expected 'key = value' or a section, got {_cut(shown)}"
    return f": {' '.join(str(error).split())}"


def _line(line: str) -> str:
    return _cut(repr(line.strip()))


def _cut(shown: str) -> str:
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _header(section: str) -> str:
    return f"[{section}]" if section.isprintable() and len(section) <= 60 else _cut(repr(f"[{section}]"))


def _headers(names: tuple[str, ...]) -> str:
    return f"{', '.join(f'[{n}]' for n in names[:-1])} or [{names[-1]}]"
