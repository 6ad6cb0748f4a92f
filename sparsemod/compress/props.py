"""Properties that know whether they are written into a recipe and when they may still be changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

__all__ = ["Argument", "BaseProp", "ModifierProp"]


class BaseProp(ABC):
    """A property decorator: read through ``__get__``, written through ``__set__``, never deleted."""

    @abstractmethod
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the value, or the property itself when asked on the class."""

    @abstractmethod
    def __set__(self, instance: Any, value: Any) -> None:
        """Set the value."""

    def __delete__(self, instance: Any) -> None:
        """Refuse.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"a property of {type(instance).__name__} cannot be deleted")

    @abstractmethod
    def getter(self, func_get: Callable[[Any], Any]) -> BaseProp:
        """Return a copy with another getter."""

    @abstractmethod
    def setter(self, func_set: Callable[[Any, Any], None]) -> BaseProp:
        """Return a copy with another setter."""


class ModifierProp(BaseProp):
    """A property of a modifier.

    Args:
        serializable: It is written into recipes.
        restrict_initialized: It cannot be set once the modifier is initialized.
        restrict_enabled: It cannot be set while the modifier is enabled.
        restrict_extras: Names of attributes; while one of them is truthy it cannot be set.
        no_serialize_val: A value that is not written; None by default, so None is never written.
        func_get: The getter.
        func_set: The setter; without one the property is read-only.
        doc: Its docstring.

    Example:
        >>> class Example:
        ...     _initialized = False
        ...     _rate = 0.1
        ...     @ModifierProp()
        ...     def rate(self):
        ...         return self._rate
        ...     @rate.setter
        ...     def rate(self, value):
        ...         self._rate = value
        >>> example = Example()
        >>> example.rate = 0.2
        >>> example.rate
        0.2
    """

    def __init__(
        self,
        serializable: bool = True,
        restrict_initialized: bool = True,
        restrict_enabled: bool = False,
        restrict_extras: Sequence[str] | None = None,
        no_serialize_val: Any = None,
        func_get: Callable[[Any], Any] | None = None,
        func_set: Callable[[Any, Any], None] | None = None,
        doc: str | None = None,
    ) -> None:
        self._serializable = serializable
        self._no_serialize_val = no_serialize_val
        self._restrictions = [
            *(["_initialized"] if restrict_initialized else []),
            *(["_enabled"] if restrict_enabled else []),
            *(restrict_extras or []),
        ]
        self._get = func_get
        self._set = func_set
        self.__doc__ = doc if doc is not None else getattr(func_get, "__doc__", None)

    def __call__(self, func_get: Callable[[Any], Any]) -> Self:
        """Decorate the getter."""
        return self.getter(func_get)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Read the value; on the class, return the property.

        Raises:
            AttributeError: There is no getter.
        """
        if instance is None:
            return self
        if self._get is None:
            raise AttributeError(f"a property of {type(instance).__name__} cannot be read")
        return self._get(instance)

    def __set__(self, instance: Any, value: Any) -> None:
        """Set the value.

        Raises:
            AttributeError: There is no setter, or a restriction holds.
        """
        if self._set is None:
            raise AttributeError(f"a property of {type(instance).__name__} cannot be set")
        for flag in self._restrictions:
            if getattr(instance, flag, False):
                raise AttributeError(
                    f"a property of {type(instance).__name__} cannot be set: it is {flag.strip('_')}"
                )
        self._set(instance, value)

    @property
    def serializable(self) -> bool:
        """Whether it is written into recipes."""
        return self._serializable

    @property
    def restrictions(self) -> list[str]:
        """The attributes that keep it from being set while they are truthy."""
        return list(self._restrictions)

    @property
    def no_serialize_val(self) -> Any:
        """The value that is not written."""
        return self._no_serialize_val

    def getter(self, func_get: Callable[[Any], Any]) -> Self:
        """Return a copy with another getter."""
        return self._copy(func_get, self._set)

    def setter(self, func_set: Callable[[Any, Any], None]) -> Self:
        """Return a copy with another setter."""
        return self._copy(self._get, func_set)

    def _copy(
        self, func_get: Callable[[Any], Any] | None, func_set: Callable[[Any, Any], None] | None
    ) -> Self:
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied._get, copied._set = func_get, func_set
        copied.__doc__ = self.__doc__ or getattr(func_get, "__doc__", None)
        return copied


class Argument(ModifierProp):
    """A modifier's argument kept in ``_<name>``, checked and converted whenever it is set.

    Args:
        convert: Returns the value to keep, or raises.
        doc: What the argument means.
        flags: The flags of `ModifierProp`.
    """

    def __init__(self, convert: Callable[[Any], Any] | None = None, doc: str = "", **flags: Any) -> None:
        super().__init__(doc=doc, **flags)
        self._convert = convert

    def __set_name__(self, owner: type, name: str) -> None:
        key = f"_{name}"

        def read(instance: Any) -> Any:
            return getattr(instance, key)

        def write(instance: Any, value: Any) -> None:
            before = getattr(instance, key)
            setattr(instance, key, self.converted(value))
            try:
                instance.validate()
            except ValueError:
                setattr(instance, key, before)
                raise

        self._get = self._get or read
        self._set = self._set or write

    def converted(self, value: Any) -> Any:
        """Return the value to keep."""
        return self._convert(value) if self._convert else value
