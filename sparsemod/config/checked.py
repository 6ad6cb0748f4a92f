"""A frozen model whose every mistake is one `ConfigError` line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from sparsemod.errors import ConfigError, nearest

__all__ = ["Checked", "unknown_key"]


class Checked(BaseModel):
    """Base of the configuration models; unknown keys come first, then missing ones, values, contradictions.

    Args:
        where: What the line begins with, for example ``config.cfg [TRAIN]``.
        values: The keys.

    Raises:
        ConfigError: If anything is wrong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, where: str | None = None, /, **values: Any) -> None:
        where = type(self).__name__ if where is None else where
        known = type(self).keys()
        for key in values:
            if key not in known:
                raise ConfigError(unknown_key(where, key, known))
        required = [key for key, field in type(self).model_fields.items() if field.is_required()]
        if missing := [key for key in required if key not in values]:
            raise ConfigError(f"{where}: missing key{'s' * (len(missing) > 1)} {', '.join(missing)}")
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(f"{where} {_wrong_values(error)}") from None
        if contradiction := self.contradiction():
            raise ConfigError(f"{where} {contradiction}")

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return the names of all keys."""
        return tuple(cls.model_fields)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], where: str | None = None) -> Self:
        """Check keys and values from Python or from a file.

        Args:
            mapping: Keys as documented, values typed or as text.
            where: What an error line begins with, for example ``Sparse(...)``.

        Raises:
            ConfigError: If a key is unknown or missing, a value wrong, or two contradict each other.
        """
        where = cls.__name__ if where is None else where
        if odd := [key for key in mapping if not isinstance(key, str)]:
            raise ConfigError(f"{where}: expected names as keys, got {odd[0]!r}")
        return cls(where, **dict(mapping))

    def contradiction(self) -> str | None:
        """Say which values contradict each other, or None; each model says its own."""
        return None


def unknown_key(where: str, key: str, known: Iterable[str]) -> str:
    """Return the line about a key that does not exist."""
    shown = f"'{key}'" if key.isprintable() else ascii(key)
    return f"{where}: unknown key {shown}{nearest(key, known)}"


def _wrong_values(error: ValidationError) -> str:
    """All wrong values in one line: ``r1: expected ..., got ...; r2: ...``."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc']))}: {item.get('ctx', {}).get('error', item['msg'])}"
        for item in error.errors()
    )
