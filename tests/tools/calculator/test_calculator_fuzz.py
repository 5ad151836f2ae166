"""The calculator against an independent evaluation, and against any text at all."""

import ast
import contextlib
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from caesura.tools.calculator.functions import (
    CONSTANTS,
    FUNCTIONS,
    MAX_BITS,
    MAX_PLACES,
    CalculationError,
    combinations,
    factorial,
    power,
)
from caesura.tools.calculator.tool import MAX_CHARACTERS, Reader, evaluate

# The deadline is for a hang, not for a busy machine.
generous = settings(deadline=60_000, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
NAMES = (*FUNCTIONS, *CONSTANTS)

# Texts built from a grammar: always well formed, so that Python's own `eval` may be trusted with
# them; small enough that it has no trouble.
integers = st.integers(0, 999).map(str)


def expressions(numbers, operators):
    return st.recursive(
        numbers,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(operators), inner).map(" ".join),
            inner.map("({})".format),
            inner.map("-{}".format),
        ),
        max_leaves=12,
    )


def python_value(text):
    try:
        return eval(text, {"__builtins__": {}})
    except ZeroDivisionError:
        return None


@generous
@given(expressions(integers, ["+", "-", "*", "//", "%"]))
def test_integers_agree_with_python(text):
    expected = python_value(text)
    text = text.replace("%", "mod")  # a % before a sign is refused as ambiguous
    if expected is None:
        with pytest.raises(CalculationError, match="division by zero"):
            evaluate(text)
    else:
        assert evaluate(text) == str(expected)


@generous
@given(st.integers(-50, 50), st.integers(0, 40), st.integers(1, 10**6))
def test_powers_agree_with_python(base, exponent, divisor):
    assert evaluate(f"({base}) ^ {exponent}") == str(base**exponent)
    assert evaluate(f"({base}) ** {exponent} % {divisor}") == str(base**exponent % divisor)


def rational(node: ast.expr) -> Fraction:
    """An evaluation of its own: exact rationals over Python's syntax tree."""
    if isinstance(node, ast.Constant):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp):
        return -rational(node.operand)
    left, right = rational(node.left), rational(node.right)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    return left * right if isinstance(node.op, ast.Mult) else left / right


@generous
@given(expressions(st.decimals(0, 999, places=2).map(str), ["+", "-", "*"]))
def test_decimals_are_those_of_rationals(text):
    expected = rational(ast.parse(text, mode="eval").body)
    got = Fraction(evaluate(text))
    if expected * 10**MAX_PLACES % 1 == 0:
        assert got == expected
    else:
        assert abs(got - expected) <= abs(expected) / 10**11


money = st.decimals(-(10**24), 10**24, places=2)


@generous
@given(money, money, st.decimals(0, 100, places=6))
def test_money_keeps_its_cents(amount, other, rate):
    with localcontext() as context:
        context.prec = 100
        assert Decimal(evaluate(f"({amount}) + ({other})")) == amount + other
        assert Decimal(evaluate(f"({amount}) * {rate:f}")) == amount * rate
        assert Decimal(evaluate(f"{rate:f}% of ({amount})")) == amount * rate / 100
        assert Decimal(evaluate(f"({amount}) * {rate:f}% - ({other})")) == (
            amount * rate / 100 - other
        )


@generous
@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=8))
@example([10**18, 7])
def test_divisions_agree_with_rationals(numbers):
    expected = rational(ast.parse(" / ".join(map(str, numbers)), mode="eval").body)
    got = Fraction(evaluate(" / ".join(map(str, numbers))))
    assert abs(got - expected) <= min(expected / 10**11, Fraction(1, 10**4))


# A text with percentages beside its value and whether the text is a percentage itself.
amounts = st.integers(1, 999).map(lambda number: (str(number), Fraction(number), False))
percentages = st.integers(1, 99).map(lambda number: (f"{number}%", Fraction(number, 100), True))


def combined(left, sign, right):
    """The two texts joined, with the only reading that a person has of them, or None for more."""
    (a, x, x_is_share), (b, y, y_is_share) = left, right
    if sign == "of":
        return (f"({a}) of {b}", x * y, False) if x_is_share else None
    if sign == "*":
        return f"({a}) * ({b})", x * y, False
    value = x + y if sign == "+" else x - y
    if y_is_share and not x_is_share and value != (x + x * y if sign == "+" else x - x * y):
        return None
    return f"({a}) {sign} ({b})", value, x_is_share and y_is_share


@generous
@given(
    st.one_of(amounts, percentages),
    st.lists(
        st.tuples(st.sampled_from(["+", "-", "*", "of"]), st.one_of(amounts, percentages)),
        max_size=5,
    ),
)
def test_percentages_have_one_reading_or_none(part, rest):
    for sign, right in rest:
        joined = combined(part, sign, right)
        if joined is None:
            with pytest.raises(CalculationError, match=r"ambiguous|'of' needs a percentage"):
                evaluate(f"({part[0]}) {sign} {right[0]}")
            return
        part = joined
    assert Fraction(evaluate(part[0])) == part[1]


@generous
@given(st.integers(0, 10**12))
def test_thousands_and_signs_as_people_write_them(number):
    assert evaluate(f"{number:,} × 2 =") == str(2 * number)
    assert evaluate(f"max({number}, 1) x 1") == str(max(number, 1))


fragments = st.lists(
    st.sampled_from(
        [
            *NAMES,
            *("of", "mod", "x", "__class__", "lambda", "if", "for", "in", "is", "await", "None"),
            *"0123456789.,()+-*/%^=?:;[]{}'\"\\@!<>&|~_ \n×÷−π",
            *("**", "//", "9**9", "10**9", "1e308", "factorial(", "comb(", "1,000", ":="),
        ]
    ),
    max_size=60,
).map("".join)


@generous
@given(st.text(max_size=600) | fragments | st.binary(max_size=60).map(lambda b: b.decode("latin")))
@example("9**9**9")
@example("1" * MAX_CHARACTERS)
@example("-" * (MAX_CHARACTERS - 1) + "1")
@example("9*" * 249 + "9")
@example("2**2**2**2**2**2")
@example("((((2**99)**99)**99)**99)")
def test_any_text_has_a_value_or_our_error(text):
    try:
        value = evaluate(text)
    except CalculationError as error:
        assert str(error)
        assert "\n" not in str(error)
    else:
        assert value
        Decimal(value)


class Measured(Reader):
    """Keeps the size of the greatest number on the way, and counts the numbers."""

    most_bits = 0
    numbers = 0

    def checked(self, value):
        value = super().checked(value)
        parts = Fraction(value) if isinstance(value, Fraction | int) else Fraction(0)
        self.most_bits = max(
            self.most_bits, parts.numerator.bit_length(), parts.denominator.bit_length()
        )
        self.numbers += 1
        return value


@generous
@given(fragments | expressions(integers, ["+", "-", "*", "//", "%", "**", "/"]))
@example("9**9999 * 9**9999 * 9")
def test_the_work_is_bounded(text):
    try:
        reader = Measured(text)
    except CalculationError:
        assume(False)
    with contextlib.suppress(ArithmeticError, CalculationError):
        reader.value()
    assert reader.numbers <= MAX_CHARACTERS
    assert reader.most_bits <= MAX_BITS


@generous
@given(st.integers(2, 10**30) | st.integers(2, 99), st.integers(2, 10**30) | st.integers(2, 9_999))
def test_a_power_is_refused_before_it_is_computed(base, exponent):
    size = exponent * math.log2(base)
    if size > 2 * MAX_BITS:
        with pytest.raises(CalculationError, match="too large"):
            power(base, exponent)
    elif size <= MAX_BITS:
        assert power(base, exponent) == base**exponent


@generous
@given(st.integers(0, 3_000) | st.integers(0, 10**40))
def test_a_factorial_is_refused_before_it_is_computed(number):
    if number > 5_000:
        with pytest.raises(CalculationError, match="too large"):
            factorial(number)
    elif number <= 3_000:
        assert factorial(number) == math.factorial(number)


@generous
@given(st.integers(0, 10**40), st.integers(0, 10**40) | st.integers(0, 50))
@example(10**400, 10**399)
def test_a_binomial_is_refused_before_it_is_computed(total, chosen):
    fewer = min(chosen, total - chosen)
    if fewer > MAX_BITS:
        with pytest.raises(CalculationError, match="too large"):
            combinations(total, chosen)
    elif fewer <= 50:
        assert combinations(total, chosen) == math.comb(total, chosen)
