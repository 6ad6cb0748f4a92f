"""The arithmetic of ``eval(...)`` in recipes: a small parser of our own, so that a recipe can never run code.

Grammar, loosest binding first, with Python's precedence::

    sum     := product (("+" | "-") product)*
    product := unary (("*" | "/" | "//" | "%") unary)*
    unary   := ("+" | "-") unary | power
    power   := atom ("**" unary)?
    atom    := number | name | function "(" sum ("," sum)* ")" | "(" sum ")"
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from sparsemod.compress.recipe_errors import RecipeEvalError
from sparsemod.errors import nearest

__all__ = ["evaluate", "names"]

MAX_LENGTH = 1000
MAX_DEPTH = 50
MAX_BITS = 1024
MAX_DIGITS = 30

FUNCTIONS: Mapping[str, Callable[..., int | float]] = {
    "abs": abs,
    "float": float,
    "int": int,
    "max": max,
    "min": min,
    "round": round,
}
BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<symbol>\*\*|//|[-+*/%(),]))",
    re.ASCII,
)


def evaluate(expression: str, variables: Mapping[str, Any]) -> Any:
    """Evaluate what stands inside ``eval(...)``.

    Args:
        expression: For example ``num_epochs * 0.8``.
        variables: The value of every name. Only numbers take part in arithmetic; an expression that is one
            lone name may stand for anything else, such as a list.

    Raises:
        RecipeEvalError: It is not arithmetic, a name is unknown, or the value is not a finite number.

    Example:
        >>> evaluate("-n + 20", {"n": 10})
        10
        >>> evaluate("round(max(a, 2.567), 2)", {"a": 1})
        2.57
    """
    name = expression.strip()
    if name in variables:
        return variables[name]
    return _Parser(expression, variables).value()


def names(expression: str) -> set[str]:
    """Return the variables an expression stands on.

    Raises:
        RecipeEvalError: The expression holds something that is not arithmetic.

    Example:
        >>> sorted(names("max(a, 3) * b"))
        ['a', 'b']
    """
    tokens = _tokens(expression)
    return {
        text
        for (kind, text), following in zip(tokens, [*tokens[1:], ("end", "")], strict=True)
        if kind == "name" and following[1] != "("
    }


def _tokens(expression: str) -> list[tuple[str, str]]:
    if len(expression) > MAX_LENGTH:
        raise RecipeEvalError(f"eval(...) takes at most {MAX_LENGTH} characters, not {len(expression)}")
    tokens, position, text = [], 0, expression.rstrip()
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise RecipeEvalError(
                f"eval({_short(expression)}): expected numbers, names, + - * / // ** % ( ) and "
                f"{', '.join(FUNCTIONS)}, not '{text[position:].strip()[0]}'"
            )
        tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
        position = match.end()
    return tokens


def _short(expression: str) -> str:
    return expression if len(expression) <= 60 else f"{expression[:57]}..."


class _Parser:
    """Recursive descent over the tokens, evaluating on the way."""

    def __init__(self, expression: str, variables: Mapping[str, Any]) -> None:
        self.expression = expression
        self.variables = variables
        self.tokens = [*_tokens(expression), ("end", "")]
        self.position = 0
        self.depth = 0

    def value(self) -> int | float:
        result = self.sum()
        if self.tokens[self.position][0] != "end":
            raise self.error(f"unexpected '{self.tokens[self.position][1]}'")
        return result

    def error(self, reason: str) -> RecipeEvalError:
        return RecipeEvalError(f"eval({_short(self.expression)}): {reason}")

    def take(self, *symbols: str) -> str | None:
        """Consume the next token if it is one of these symbols."""
        kind, text = self.tokens[self.position]
        if kind == "symbol" and text in symbols:
            self.position += 1
            return text
        return None

    def expect(self, symbol: str) -> None:
        if self.take(symbol) is None:
            raise self.error(f"expected '{symbol}', not '{self.tokens[self.position][1] or 'the end'}'")

    def sum(self) -> int | float:
        left = self.product()
        while symbol := self.take("+", "-"):
            left = self.apply(symbol, left, self.product())
        return left

    def product(self) -> int | float:
        left = self.unary()
        while symbol := self.take("*", "/", "//", "%"):
            left = self.apply(symbol, left, self.unary())
        return left

    def unary(self) -> int | float:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels")
        try:
            if symbol := self.take("+", "-"):
                operand = self.unary()
                return -operand if symbol == "-" else operand
            base = self.atom()
            return self.apply("**", base, self.unary()) if self.take("**") else base
        finally:
            self.depth -= 1

    def atom(self) -> int | float:
        kind, text = self.tokens[self.position]
        if kind == "number":
            self.position += 1
            return self.number(text)
        if kind == "name":
            self.position += 1
            return self.call(text) if self.take("(") else self.variable(text)
        if self.take("(") is None:
            raise self.error(f"expected a number or a name, not '{text or 'the end'}'")
        inner = self.sum()
        self.expect(")")
        return inner

    def number(self, text: str) -> int | float:
        return self.checked(int(text) if text.isdigit() else float(text))

    def variable(self, name: str) -> int | float:
        if name not in self.variables:
            raise self.error(f"unknown variable '{name}'{nearest(name, self.variables)}")
        value = self.variables[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f"'{name}' is {value!r}, not a number")
        return self.checked(value)

    def call(self, name: str) -> int | float:
        if name not in FUNCTIONS:
            raise self.error(f"unknown function '{name}': there are {', '.join(FUNCTIONS)}")
        arguments = [self.sum()]
        while self.take(","):
            arguments.append(self.sum())
        self.expect(")")
        if name in ("min", "max") and len(arguments) == 1:
            return arguments[0]
        if name == "round" and len(arguments) == 2 and not abs(arguments[1]) <= MAX_DIGITS:
            raise self.error(f"round takes at most {MAX_DIGITS} digits")
        try:
            return self.checked(FUNCTIONS[name](*arguments))
        except (TypeError, ValueError, OverflowError) as error:
            raise self.error(f"{name}: {error}") from None

    def apply(self, symbol: str, left: int | float, right: int | float) -> int | float:
        if symbol == "**" and isinstance(left, int) and isinstance(right, int):
            self.check_bits(abs(right) * left.bit_length())
        try:
            result = BINARY[symbol](left, right)
        except ZeroDivisionError:
            raise self.error("division by zero") from None
        except OverflowError:
            raise self.error("the value is too large") from None
        return self.checked(result)

    def check_bits(self, n_bits: int) -> None:
        if n_bits > MAX_BITS:
            raise self.error("the value is too large")

    def checked(self, value: Any) -> int | float:
        if not isinstance(value, int | float):
            raise self.error(f"the value is {value!r}, not a real number")
        if isinstance(value, int):
            self.check_bits(value.bit_length())
        elif not math.isfinite(value):
            raise self.error(f"the value is {value}, not a finite number")
        return value
