import ast
import math

import pytest

from caesura.tools import calculator
from caesura.tools.calculator.expression import MAX_CHARACTERS, CalculationError
from caesura.tools.calculator.tool import MAX_RESULT_DIGITS, MAX_STEPS, Evaluator, evaluate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        # exact integers
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("2^10", "1024"),
        ("2 ^ 3 ^ 2", "512"),
        ("-2**2", "-4"),
        ("--3", "3"),
        ("+3", "3"),
        ("7 // 2", "3"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("12345678901234567890 * 98765432109876543210", "1219326311370217952237463801111263526900"),
        ("007 + 1", "8"),
        # division: exact where it comes out even
        ("12/4", "3"),
        ("10**30 / 10", "1" + "0" * 29),
        ("1/3", "0.333333333333"),
        ("12.0 / 4", "3"),
        # floats without their noise
        ("0.1 + 0.2", "0.3"),
        ("1.1 * 1.1", "1.21"),
        ("7% of 100", "7"),
        ("2.50 * 2", "5"),
        (".5 + 5.", "5.5"),
        ("1e3", "1000"),
        ("1E-3", "0.001"),
        ("1e300", "1e+300"),
        ("-0.0", "0"),
        ("2**-1", "0.5"),
        ("1e15 + 0.0", "1000000000000000"),
        # as people write
        ("1,234,567 + 1", "1234568"),
        ("(1,234.5 + 5,000) * 2", "12469"),
        ("max(1,234)", "234"),
        ("log10(1,000 + 0) ", None),
        ("max((1,234), 5)", "1234"),
        ("log(8,2)", "3"),
        ("3 x 4", "12"),
        ("3x4X5", "60"),
        ("(1+2) x (3)", "9"),
        ("6 × 7", "42"),
        ("84 ÷ 2", "42"),
        ("50 − 8", "42"),
        ("6 · 7", "42"),
        ("42 =", "42"),
        ("6*7 = ?", "42"),
        ("15% of 80", "12"),
        ("2 + 15% of 80", "14"),
        ("(10+5)% of 80", "12"),
        ("20 % 6", "2"),
        ("  6\n* 7 ", "42"),
        # functions and constants
        ("sqrt(16)", "4"),
        ("sqrt(10**40)", "1" + "0" * 20),
        ("sqrt(2)", "1.41421356237"),
        ("SQRT(9) + Pi", "6.14159265359"),
        ("2 * π", "6.28318530718"),
        ("e", "2.71828182846"),
        ("abs(-3)", "3"),
        ("round(2.567, 2)", "2.57"),
        ("round(2.5)", "2"),
        ("round(12345, -2)", "12300"),
        ("min(3, 1, 2) + max(4)", "5"),
        ("floor(-1.5) + ceil(1.2)", "0"),
        ("log(e)", "1"),
        ("log2(2**200)", "200"),
        ("log10(1000)", "3"),
        ("exp(0)", "1"),
        ("sin(0) + cos(0) + tan(0)", "1"),
        ("factorial(20)", "2432902008176640000"),
        ("factorial(0) + factorial(1.0)", "2"),
        ("comb(52, 5)", "2598960"),
        ("comb(5, 0) + comb(5, 5) + comb(5, 6)", "2"),
        ("gcd(12, 18, 27)", "3"),
    ],
)
def test_values(expression, value):
    if value is None:
        with pytest.raises(CalculationError):
            evaluate(expression)
    else:
        assert evaluate(expression) == value


TOO_LARGE = "the number is too large"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        # would take for ever, or all the memory
        ("9**9**9", TOO_LARGE),
        ("9**3999999*9**3999999", TOO_LARGE),
        ("(-9)**(9**9)", TOO_LARGE),
        ("2**(10**4000)", TOO_LARGE),
        ("factorial(10**9)", TOO_LARGE),
        ("factorial(10**4000)", TOO_LARGE),
        ("factorial(factorial(100))", TOO_LARGE),
        ("comb(10**9, 5*10**8)", TOO_LARGE),
        ("comb(10**4000, 5000)", TOO_LARGE),
        ("1e308*10", TOO_LARGE),
        ("1e999", TOO_LARGE),
        ("10**4000 * 1.5", TOO_LARGE),
        ("10.0**400", TOO_LARGE),
        ("exp(1000)", TOO_LARGE),
        ("round(1.5, 10**9)", "round takes at most 100 whole digits"),
        ("round(5, -10**9)", "round takes at most 100 whole digits"),
        ("round(5, 0.5)", "round takes at most 100 whole digits"),
        (f"10**{MAX_RESULT_DIGITS}", "the result has about 4001 digits: too long to write out"),
        ("(" * 10_000 + ")" * 10_000, "expression too long: 20000 characters, at most 500"),
        ("(" * 200, "nested too deeply: at most 50 parentheses"),
        ("-" * 400 + "1", "the expression has too many parts"),
        ("1" * (MAX_CHARACTERS + 1), "expression too long"),
        # would be code
        ("(lambda:0)()", "unknown name 'lambda'"),
        ("__import__('os').system('x')", "unknown name '__import__'"),
        ("().__class__", "unexpected '.'"),
        ("pi.real", "unexpected '.'"),
        ('"a"*10**9', "unexpected '\"'"),
        ("f'{1}'", "unknown name 'f'"),
        ("[i for i in (1,2)]", "unexpected '['"),
        ("{1}", "unexpected '{'"),
        ("(x:=1)", "unknown name 'x'"),
        ("(pi:=1)", "unexpected ':'"),
        ("1 if 1 else 2", "unknown name 'if'"),
        ("not 1", "unknown name 'not'"),
        ("True + 1", "unknown name 'true'"),
        ("1j", "unknown name 'j'"),
        ("1_000", "unknown name '_000'"),
        ("~1", "unexpected '~'"),
        ("1 << 9", "unexpected '<'"),
        ("1\\\n+1", "unexpected '\\\\'"),
        ("1 # x", "unexpected '#'"),
        ("\x00", "unexpected '\\x00'"),
        ("٣ + 1", "unexpected '٣'"),
        ("sqrt(x=1)", "unknown name 'x'"),
        ("max(pi=1)", "unexpected '='"),
        ("max(*pi)", "cannot read the expression"),
        ("max(1)(2)", "cannot read the expression"),
        ("pi(2)", "cannot read the expression"),
        ("sqrt", "cannot read the expression"),
        # has no value
        ("1/0", "division by zero"),
        ("1//0", "division by zero"),
        ("5.5 % 0", "division by zero"),
        ("0**-1", "division by zero"),
        ("(-8)**0.5", "the result is not a real number"),
        ("sqrt(-1)", "sqrt(-1) is not defined"),
        ("log(0)", "log(0) is not defined"),
        ("log(8, 1)", "division by zero"),
        ("factorial(-1)", "factorial(-1) is not defined"),
        ("factorial(2.5)", "factorial(2.5) is not defined"),
        ("gcd(1.5, 2)", "gcd(1.5, 2) is not defined"),
        ("comb(-1, 2)", "comb(-1, 2) is not defined"),
        ("max()", "max takes 1 to 100 arguments, got 0"),
        ("comb(5)", "comb takes 2 arguments, got 1"),
        # is no expression
        ("", "the expression is empty"),
        (" = ", "the expression is empty"),
        ("2(3)", "cannot read the expression; write it like 2 * (3 + 4)"),
        ("1 +", "cannot read the expression"),
        ("1, 2", "cannot read the expression"),
        ("1,23", "cannot read the expression"),
        ("1)", "a ')' without its '('"),
        ("(1", "cannot read the expression"),
        ("50%", "cannot read the expression"),
        ("0x10", "write numbers in decimal"),
        ("2+2=4", "unexpected '='"),
        ("what is 2+2", "unknown name 'what'; known: sqrt, abs"),
    ],
)
def test_errors(expression, message):
    with pytest.raises(CalculationError) as caught:
        evaluate(expression)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 200


def test_a_sum_of_as_many_numbers_as_fit_the_text():
    assert evaluate("1+" * 249 + "1") == "250"


def test_a_tree_with_too_many_nodes_is_refused_half_way():
    # More than any text of the allowed length has: the walk does not rely on that limit.
    tree = ast.parse(f"max({', '.join('9' * 600)})", mode="eval")
    evaluator = Evaluator()
    with pytest.raises(CalculationError, match="too many parts"):
        evaluator.value(tree.body)
    assert evaluator.steps == MAX_STEPS + 1


@pytest.mark.parametrize(
    "code",
    [
        "True",
        "1j",
        "'a'",
        "None",
        "x",
        "open",
        "pi.real",
        "[1]",
        "(1, 2)",
        "1 < 2",
        "1 and 2",
        "not 1",
        "~1",
        "1 << 2",
        "1 if 1 else 2",
        "lambda: 1",
        "(x := 1)",
        "f'{1}'",
        "open(1)",
        "max(1, key=abs)",
        "max(*[1])",
        "pi[0]",
        "[x for x in 'ab']",
        "max(1)(2)",
        "sqrt",
    ],
)
def test_the_walk_refuses_other_syntax_even_if_the_tokens_let_it_pass(code):
    with pytest.raises(CalculationError):
        Evaluator().value(ast.parse(code, mode="eval").body)


def test_results_up_to_the_limit_are_exact():
    assert evaluate("factorial(1000) / factorial(999)") == "1000"
    assert evaluate(f"10**{MAX_RESULT_DIGITS - 1}") == "1" + "0" * (MAX_RESULT_DIGITS - 1)
    # Larger ones may still be computed with.
    assert evaluate("2**30000 % 1000007") == str(pow(2, 30_000, 1_000_007))
    assert evaluate("comb(10000, 5000) % 1000007") == str(math.comb(10_000, 5_000) % 1_000_007)


def test_the_tool():
    assert calculator("6*7") == "42"
    expression = calculator.parameters["properties"]["expression"]
    assert "factorial" in expression["description"]
    assert calculator.parameters["required"] == ["expression"]


def test_trees_that_python_mixes_up_are_built_again(mixed_up_trees: list[str]) -> None:
    assert evaluate("6 * 7") == "42"
    assert len(mixed_up_trees) == 3
