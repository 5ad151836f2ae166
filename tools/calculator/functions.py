"""The calculator's numbers, operators and functions; each bounds its cost before it runs.

Integers and fractions are exact: `1.1` is 11/10 here, never a binary float. Integers have at most
MAX_BITS bits. A power, product, factorial or binomial that would have more is refused before it
is computed. What has no exact value, such as sqrt(2), is a Decimal of PRECISION digits.
"""

import decimal
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from caesura.tools.errors import Permanent

Number = int | Fraction | Decimal

MAX_BITS = 32_768
"""The size of the largest integer that is computed."""
MAX_FRACTION_BITS = 4_096
"""The size of an exact fraction's parts; a longer one goes on as a Decimal."""
MAX_ROUND_DIGITS = 100
MAX_ANGLE = 10**12
"""The largest angle of sin, cos and tan: beyond it the digits of pi do not suffice."""
PRECISION = 60
MAX_RESULT_DIGITS = 4_000
"""The longest integer that is written out; Python itself refuses from 4,300 digits."""
MAX_PLACES = 20
"""Decimal places that are written out exactly; a number with more is rounded."""
SIGNIFICANT_DIGITS = 12
"""The least digits of a rounded number. Its whole part and ROUNDED_PLACES places always stay."""
ROUNDED_PLACES = 4
MAX_WHOLE_DIGITS = 40
"""A Decimal with more digits before its point is written with an exponent."""
KNOWN_DIGITS = 45
"""Digits of a Decimal that no rounding error reaches."""

TOO_LARGE = "the number is too large"
TOO_SMALL = "the number is too small"

_CONTEXT = decimal.Context(
    prec=PRECISION,
    rounding=decimal.ROUND_HALF_EVEN,
    Emin=-20_000,
    Emax=20_000,
    traps=[
        decimal.Overflow,
        decimal.Underflow,
        decimal.DivisionByZero,
        decimal.InvalidOperation,
    ],
)
_NOISE = Decimal(10) ** -KNOWN_DIGITS
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
_QUARTER_TURN = _CONTEXT.divide(_PI, Decimal(2))


class CalculationError(Permanent):
    """The expression cannot be evaluated. The message is one short sentence for the model."""


def number(text: str) -> Number:
    """Return the exact number that a decimal literal writes. Raises CalculationError."""
    try:
        value = Decimal(text)  # exact, whatever the context
    except decimal.InvalidOperation:  # an exponent that even the library refuses
        raise CalculationError(TOO_SMALL if "-" in text else TOO_LARGE) from None
    if not value:
        return 0
    if value.adjusted() > MAX_BITS * math.log10(2):
        raise CalculationError(TOO_LARGE)
    if value.adjusted() < _CONTEXT.Emin:
        raise CalculationError(TOO_SMALL)
    return bounded(Fraction(value))


def bounded(value: Any) -> Number:
    """Return the value in its simplest form, if it is within the limits of size.

    A Decimal that is whole but for rounding errors becomes that integer. Raises CalculationError.
    """
    if isinstance(value, Decimal) and value.adjusted() < KNOWN_DIGITS:
        nearest = value.to_integral_value(context=_CONTEXT)
        if _CONTEXT.subtract(value, nearest).copy_abs() <= nearest.copy_abs() * _NOISE:
            value = int(nearest)
    if isinstance(value, Fraction):
        if value.denominator == 1:
            value = value.numerator
        elif max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_FRACTION_BITS:
            value = _inexact(value)
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise CalculationError(TOO_LARGE)
    return value  # type: ignore[no-any-return]


def add(left: Number, right: Number) -> Number:
    """Return the sum; what remains of inexact numbers that cancel each other is zero."""
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        a, b = _inexact(left), _inexact(right)
        total = _CONTEXT.add(a, b)
        largest = max(a.copy_abs(), b.copy_abs())
        return 0 if total.copy_abs() <= largest * _NOISE else total
    return left + right


def subtract(left: Number, right: Number) -> Number:
    """Return the difference."""
    return add(left, negative_of(right))


def negative_of(value: Number) -> Number:
    """Return the number with the other sign."""
    return value.copy_negate() if isinstance(value, Decimal) else -value


def absolute(value: Number) -> Number:
    """Return the number without its sign."""
    return negative_of(value) if value < 0 else value


def multiply(left: Number, right: Number) -> Number:
    """Return the product."""
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _CONTEXT.multiply(_inexact(left), _inexact(right))
    if isinstance(left, int) and isinstance(right, int):
        _check_size(left.bit_length() + right.bit_length() - 1)
    return left * right


def divide(left: Number, right: Number) -> Number:
    """Return the quotient."""
    if right == 0:
        raise ZeroDivisionError
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _CONTEXT.divide(_inexact(left), _inexact(right))
    return Fraction(left) / right


def floor_divide(left: Number, right: Number) -> int:
    """Return the whole part of the quotient, rounded towards minus infinity."""
    if not isinstance(left, Decimal) and not isinstance(right, Decimal):
        return left // right
    return math.floor(_with_known_digits(bounded(divide(left, right))))


def remainder(left: Number, right: Number) -> Number:
    """Return what is left after whole division; it has the sign of `right`."""
    if not isinstance(left, Decimal) and not isinstance(right, Decimal):
        return left % right
    return subtract(left, bounded(multiply(right, floor_divide(left, right))))


def power(base: Number, exponent: Number) -> Number:
    """Return the power. Raises CalculationError where it is not a real number."""
    if base == 0:
        return divide(1, 0) if exponent < 0 else int(exponent == 0)
    if not isinstance(exponent, int):
        if base < 0:
            raise CalculationError("the result is not a real number")
        return _CONTEXT.power(_inexact(base), _inexact(exponent))
    if isinstance(base, Decimal):
        return _CONTEXT.power(base, _inexact(exponent))
    if abs(base) == 1:
        return base if exponent % 2 else 1
    if isinstance(base, int) and exponent > 0:
        _check_size((base.bit_length() - 1) * exponent)
        return int(base**exponent)
    parts = Fraction(base)
    bits = max(parts.numerator.bit_length(), parts.denominator.bit_length())
    if bits * abs(exponent) > MAX_FRACTION_BITS:
        return _CONTEXT.power(_inexact(base), _inexact(exponent))
    return Fraction(parts**exponent)


def whole(value: Number) -> int:
    """Return the value as an integer; raises ValueError unless it is whole."""
    if not isinstance(value, int):
        raise ValueError(value)
    return value


def factorial(value: Number) -> int:
    """Return the factorial of a whole number >= 0."""
    count = whole(value)
    if count > 1:
        # ln n! > n ln n - n. Above MAX_BITS the number itself already exceeds the limit.
        _check_size(count if count > MAX_BITS else count * (math.log2(count) - 1.5))
    return math.factorial(count)


def combinations(all_things: Number, chosen_things: Number) -> int:
    """Return the number of ways to choose some things from all."""
    total, chosen = whole(all_things), whole(chosen_things)
    if 0 < chosen < total:
        fewer = min(chosen, total - chosen)
        _check_size(fewer)  # the result has at least as many bits, and log2 below cannot overflow
        # The binomial is at most (e n / k)^k.
        _check_size(fewer * (math.log2(total) - math.log2(fewer) + math.log2(math.e)))
    return math.comb(total, chosen)


def rounded(value: Number, digits: Number = 0) -> Number:
    """Return the value rounded to `digits` decimal digits, halves to even."""
    if not isinstance(digits, int) or abs(digits) > MAX_ROUND_DIGITS:
        shown = digits if isinstance(digits, int) else format_number(digits)
        raise CalculationError(f"round takes at most {MAX_ROUND_DIGITS} whole digits, got {shown}")
    return round(Fraction(_with_known_digits(value)), digits)


def square_root(value: Number) -> Number:
    """Return the square root: exact for the square of an integer or a fraction."""
    if not isinstance(value, Decimal) and value >= 0:
        parts = Fraction(value)
        root = Fraction(math.isqrt(parts.numerator), math.isqrt(parts.denominator))
        if root * root == parts:
            return root
    return _CONTEXT.sqrt(_inexact(value))


def logarithm(value: Number, base: Number | None = None) -> Number:
    """Return the natural logarithm, or the one to a base."""
    if value <= 0 or (base is not None and base <= 0):
        raise ValueError(value)
    if base == 10:
        return _CONTEXT.log10(_inexact(value))
    natural = _CONTEXT.ln(_inexact(value))
    return natural if base is None else divide(natural, _CONTEXT.ln(_inexact(base)))


def sine(angle: Number) -> Number:
    """Return the sine of an angle in radians."""
    if absolute(angle) > MAX_ANGLE:
        raise CalculationError(f"an angle is at most {MAX_ANGLE} radians")
    with decimal.localcontext(_CONTEXT) as context:
        context.prec = PRECISION + 15
        rest = _inexact(angle) % (2 * _PI)
        term = total = rest
        step = 1
        while abs(term) > Decimal(10) ** -PRECISION:
            step += 2
            term = -term * rest * rest / (step * (step - 1))
            total += term
        return 0 if abs(total) < _NOISE else _CONTEXT.plus(total)


def cosine(angle: Number) -> Number:
    """Return the cosine of an angle in radians."""
    return sine(add(angle, _QUARTER_TURN)) if angle else 1


def tangent(angle: Number) -> Number:
    """Return the tangent of an angle in radians."""
    below = cosine(angle)
    if not below:
        raise ValueError(angle)
    return divide(sine(angle), below)


BINARY: Mapping[str, Callable[[Number, Number], Number]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "//": floor_divide,
    "%": remainder,
    "**": power,
}
"""The binary operators."""

CONSTANTS: Mapping[str, Number] = {"pi": _CONTEXT.plus(_PI), "e": _CONTEXT.exp(Decimal(1))}

FUNCTIONS: Mapping[str, tuple[Callable[..., Any], int, int]] = {
    "sqrt": (square_root, 1, 1),
    "abs": (absolute, 1, 1),
    "round": (rounded, 1, 2),
    "min": (lambda *values: min(values, key=Fraction), 1, 100),
    "max": (lambda *values: max(values, key=Fraction), 1, 100),
    "floor": (lambda value: math.floor(_with_known_digits(value)), 1, 1),
    "ceil": (lambda value: math.ceil(_with_known_digits(value)), 1, 1),
    "log": (logarithm, 1, 2),
    "log2": (lambda value: logarithm(value, 2), 1, 1),
    "log10": (lambda value: logarithm(value, 10), 1, 1),
    "exp": (lambda value: _CONTEXT.exp(_inexact(value)), 1, 1),
    "sin": (sine, 1, 1),
    "cos": (cosine, 1, 1),
    "tan": (tangent, 1, 1),
    "factorial": (factorial, 1, 1),
    "comb": (combinations, 2, 2),
    "gcd": (lambda *values: math.gcd(*map(whole, values)), 1, 100),
}
"""Each function with the least and the most arguments that it takes."""


def call(name: str, arguments: list[Number]) -> Number:
    """Return a function's value. Raises CalculationError where it has none."""
    function, least, most = FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise CalculationError(f"{name} takes {wanted} arguments, got {len(arguments)}")
    try:
        return bounded(function(*arguments))
    except (ValueError, TypeError, decimal.InvalidOperation):
        shown = ", ".join(format_number(argument) for argument in arguments)
        raise CalculationError(f"{name}({shown}) is not defined") from None


def format_number(value: Number) -> str:
    """Return a number as text: exact up to MAX_PLACES decimal places, else rounded.

    Raises CalculationError for a number of more than MAX_RESULT_DIGITS digits.
    """
    if isinstance(value, int):
        return _integer(value)
    size = _inexact(value).adjusted() + 1  # the digits before the point, if positive
    if isinstance(value, Fraction):
        if (places := _places(value)) <= MAX_PLACES:
            return _trimmed(f"{Decimal(f'{value * 10**places}e-{places}'):g}")
    elif size > MAX_WHOLE_DIGITS:
        return _trimmed(f"{value:.{SIGNIFICANT_DIGITS - 1}e}")
    context = decimal.Context(prec=max(SIGNIFICANT_DIGITS, size + ROUNDED_PLACES))
    if isinstance(value, Decimal):
        return _trimmed(f"{context.plus(value):g}")
    return _trimmed(f"{context.divide(Decimal(value.numerator), Decimal(value.denominator)):g}")


def _integer(value: int) -> str:
    digits = int(value.bit_length() * math.log10(2)) + 1
    if digits > MAX_RESULT_DIGITS:
        raise CalculationError(f"the result has about {digits} digits: too long to write out")
    return str(value)


def _places(value: Fraction) -> int:
    """Return how many decimal places the exact value has; MAX_PLACES + 1 stands for more."""
    return next(
        (count for count in range(MAX_PLACES + 1) if 10**count % value.denominator == 0),
        MAX_PLACES + 1,
    )


def _trimmed(text: str) -> str:
    """Return the text of a number without zeros at the end of its decimals."""
    digits, mark, exponent = text.partition("e")
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) + mark + exponent


def _with_known_digits(value: Number) -> Number:
    """Return the value. Raises CalculationError if its last whole digits are not known."""
    if isinstance(value, Decimal) and value.adjusted() >= KNOWN_DIGITS:
        raise CalculationError(f"only {KNOWN_DIGITS} digits of {format_number(value)} are known")
    return value


def _inexact(value: Number) -> Decimal:
    """Return the value as a Decimal of the context's precision."""
    if isinstance(value, Fraction):
        return _CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))
    return _CONTEXT.plus(Decimal(value))


def _check_size(bits: float) -> None:
    """Raise CalculationError where a result of that many bits is too large to compute."""
    if bits > MAX_BITS:
        raise CalculationError(TOO_LARGE)
