"""The calculator's functions and operators; each bounds its cost before it runs.

Integers are exact and have at most MAX_BITS bits. A power, product, factorial or binomial that
would have more is refused before it is computed.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from caesura.tools.calculator.expression import CalculationError

Number = int | float

MAX_BITS = 32_768
"""The size of the largest integer that is computed."""
MAX_ROUND_DIGITS = 100

TOO_LARGE = "the number is too large"


def bounded(value: Any) -> Number:
    """Return the value if it is a number within the size limit, else raise CalculationError."""
    if type(value) is int:
        if value.bit_length() > MAX_BITS:
            raise CalculationError(TOO_LARGE)
        return value
    if type(value) is float:
        if math.isnan(value):
            raise CalculationError("the result is not a number")
        if math.isinf(value):
            raise CalculationError(TOO_LARGE)
        return value
    raise CalculationError("the result is not a real number")


def multiply(left: Number, right: Number) -> Number:
    """Return the product."""
    if isinstance(left, int) and isinstance(right, int):
        _check_size(left.bit_length() + right.bit_length() - 1)
    return left * right


def divide(left: Number, right: Number) -> Number:
    """Return the quotient: exact where two integers divide evenly, a float otherwise."""
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return left / right


def power(base: Number, exponent: Number) -> Any:
    """Return the power; `bounded` refuses a complex one."""
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0 and abs(base) > 1:
        _check_size((base.bit_length() - 1) * exponent)
    return base**exponent


def whole(value: Number) -> int:
    """Return the value as an integer; raises ValueError unless it is whole."""
    if value != int(value):
        raise ValueError(value)
    return int(value)


def factorial(value: Number) -> int:
    """Return the factorial of a whole number >= 0."""
    number = whole(value)
    if number > 1:
        # ln n! > n ln n - n. Above MAX_BITS the number itself already exceeds the limit.
        _check_size(number if number > MAX_BITS else number * (math.log2(number) - 1.5))
    return math.factorial(number)


def combinations(all_things: Number, chosen_things: Number) -> int:
    """Return the number of ways to choose some things from all."""
    total, chosen = whole(all_things), whole(chosen_things)
    if 0 < chosen < total:
        fewer = min(chosen, total - chosen)
        _check_size(fewer)  # the result has at least as many bits, and log2 below cannot overflow
        # The binomial is at most (e n / k)^k.
        _check_size(fewer * (math.log2(total) - math.log2(fewer) + math.log2(math.e)))
    return math.comb(total, chosen)


def rounded(value: Number, digits: int = 0) -> Number:
    """Return the value rounded to `digits` decimal digits, halves to even."""
    if not isinstance(digits, int) or abs(digits) > MAX_ROUND_DIGITS:
        raise CalculationError(f"round takes at most {MAX_ROUND_DIGITS} whole digits, got {digits}")
    return round(value, digits) if digits else round(value)


def square_root(value: Number) -> Number:
    """Return the square root: exact for the square of an integer."""
    if isinstance(value, int) and value >= 0:
        root = math.isqrt(value)
        if root * root == value:
            return root
    return math.sqrt(value)


BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": multiply,
    "Div": divide,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Pow": power,
}
"""The binary operators, by the name of their node in Python's syntax tree."""

UNARY: Mapping[str, Callable[[Any], Any]] = {"UAdd": operator.pos, "USub": operator.neg}

CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e}

FUNCTIONS: Mapping[str, tuple[Callable[..., Any], int, int]] = {
    "sqrt": (square_root, 1, 1),
    "abs": (abs, 1, 1),
    "round": (rounded, 1, 2),
    "min": (lambda *values: min(values), 1, 100),
    "max": (lambda *values: max(values), 1, 100),
    "floor": (math.floor, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "log": (math.log, 1, 2),
    "log2": (math.log2, 1, 1),
    "log10": (math.log10, 1, 1),
    "exp": (math.exp, 1, 1),
    "sin": (math.sin, 1, 1),
    "cos": (math.cos, 1, 1),
    "tan": (math.tan, 1, 1),
    "factorial": (factorial, 1, 1),
    "comb": (combinations, 2, 2),
    "gcd": (lambda *values: math.gcd(*map(whole, values)), 1, 100),
}
"""Each function with the least and the most arguments that it takes."""


def _check_size(bits: float) -> None:
    """Raise CalculationError where a result of that many bits is too large to compute."""
    if bits > MAX_BITS:
        raise CalculationError(TOO_LARGE)
