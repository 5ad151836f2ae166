"""The calculator against an independent evaluation, and against any text at all."""

import ast
import contextlib
import math
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from caesura.tools.calculator.expression import MAX_CHARACTERS, CalculationError, normal_form
from caesura.tools.calculator.functions import (
    CONSTANTS,
    FUNCTIONS,
    MAX_BITS,
    combinations,
    factorial,
    power,
)
from caesura.tools.calculator.tool import MAX_STEPS, Evaluator, evaluate

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


def magnitude(node: ast.expr) -> Fraction:
    """The same with every term positive: what rounding errors are in proportion to."""
    if isinstance(node, ast.Constant):
        return abs(Fraction(str(node.value)))
    if isinstance(node, ast.UnaryOp):
        return magnitude(node.operand)
    left, right = magnitude(node.left), magnitude(node.right)
    if isinstance(node.op, ast.Mult):
        return left * right
    return left + right


@generous
@given(expressions(st.decimals(0, 999, places=2).map(str), ["+", "-", "*"]))
def test_decimals_agree_with_rationals(text):
    tree = ast.parse(text, mode="eval").body
    difference = abs(Fraction(evaluate(text)) - rational(tree))
    assert difference <= Fraction(1, 10**11) * (magnitude(tree) + 1)


@generous
@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=8))
def test_divisions_agree_with_rationals(numbers):
    text = " / ".join(map(str, numbers))
    expected = rational(ast.parse(text, mode="eval").body)
    assert math.isclose(float(Fraction(evaluate(text))), float(expected), rel_tol=1e-11)


@generous
@given(st.integers(0, 10**12))
def test_thousands_and_signs_as_people_write_them(number):
    assert evaluate(f"{number:,} × 2 =") == str(2 * number)
    assert evaluate(f"max({number}, 1) x 1") == str(max(number, 1))


fragments = st.lists(
    st.sampled_from(
        [
            *NAMES,
            *("of", "x", "__class__", "lambda", "if", "for", "in", "is", "await", "None"),
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
        float(value) if len(value) < 300 else int(value)


class Counted(Evaluator):
    """Keeps the size of the greatest number on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.most_bits = 0

    def value(self, node, depth=0):
        value = super().value(node, depth)
        if isinstance(value, int):
            self.most_bits = max(self.most_bits, value.bit_length())
        return value


@generous
@given(fragments | expressions(integers, ["+", "-", "*", "//", "%", "**", "/"]))
@example("9**9999 * 9**9999 * 9")
def test_the_work_is_bounded(text):
    try:
        tree = ast.parse(normal_form(text, NAMES), mode="eval").body
    except (CalculationError, SyntaxError):
        assume(False)
    counted = Counted()
    with contextlib.suppress(ArithmeticError):
        counted.value(tree)
    assert counted.steps <= MAX_STEPS + 1
    assert counted.most_bits <= MAX_BITS


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
