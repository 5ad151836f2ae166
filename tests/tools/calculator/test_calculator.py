import math

import pytest

from caesura.tools.calculator.functions import MAX_RESULT_DIGITS, CalculationError
from caesura.tools.calculator.tool import MAX_CHARACTERS, calculator, evaluate


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
        # decimals are exact
        ("12345678901.23 + 0.01", "12345678901.24"),
        ("987654321098.76 - 0.5", "987654321098.26"),
        ("1234567890123.45 + 1", "1234567890124.45"),
        ("48211973354.10 * 3", "144635920062.3"),
        ("123456789012345678901234567890.12 + 0.01", "123456789012345678901234567890.13"),
        ("1.05 ^ 10", "1.62889462677744140625"),
        ("0.3 // 0.1", "3"),
        ("1 mod 0.1", "0"),
        ("round(2.675, 2)", "2.68"),
        # rounded, but never before the point
        ("10^15 / 7", "142857142857142.8571"),
        ("123456789012345.67 / 3", "41152263004115.2233"),
        ("1.05 ^ 30", "4.32194237515"),
        ("1.0001 ^ 36500", "38.4676455312"),
        ("0.1 ^ 2000", "1e-2000"),
        ("exp(1000)", "1.97007111402e+434"),
        # no rounding errors of inexact numbers
        ("sqrt(2)^2 - 2", "0"),
        ("sqrt(10^20 + 1) - 10^10", "5e-11"),
        ("sin(pi) + cos(pi / 2)", "0"),
        ("floor(log(1000, 10)) + floor(sqrt(3) * sqrt(3))", "6"),
        ("8 ^ (1 / 3)", "2"),
        ("0.1 + 0.2", "0.3"),
        ("1.1 * 1.1", "1.21"),
        ("7% of 100", "7"),
        ("2.50 * 2", "5"),
        (".5 + 5.", "5.5"),
        ("1e3", "1000"),
        ("1E-3", "0.001"),
        ("1e300", "1" + "0" * 300),
        ("1e-10", "1e-10"),
        ("0e999999999", "0"),
        ("-0.0", "0"),
        ("2**-1", "0.5"),
        ("1e15 + 0.0", "1000000000000000"),
        # as people write
        ("1,234,567 + 1", "1234568"),
        ("(1,234.5 + 5,000) * 2", "12469"),
        ("max(1, 234)", "234"),
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
        # percentages
        ("1200 * 5% + 30", "90"),
        ("30 + 1200 * 5%", "90"),
        ("30 + 5% * 1200", "90"),
        ("80 * 15% - 4", "8"),
        ("2500 * 8.25% + 12.5", "218.75"),
        ("1200 * 5 % + 30", "90"),
        ("7% + 3", "3.07"),
        ("5% + 3%", "0.08"),
        ("5% + 3% + 100", "100.08"),
        ("(40 + 10)% - 0.1", "0.4"),
        ("100 * (1 + 5%)", "105"),
        ("0 + 0%", "0"),
        ("50%", "0.5"),
        ("-5%", "-0.05"),
        ("50% / 2", "0.25"),
        ("100 / 5%", "2000"),
        ("5% x 80", "4"),
        ("5%^2", "0.0025"),
        ("2 ^ (50%) * 2 ^ (50%)", "2"),
        ("sqrt(16)% of 100", "4"),
        ("max(5%, 10%)", "0.1"),
        ("-15% of 80", "-12"),
        ("15% of 20% of 80", "2.4"),
        ("100 - 15% of 80 + 5", "93"),
        ("100 / (15% of 80)", "8.33333333333"),
        ("15% of 80 / 2", "6"),
        ("17%-5", "-4.83"),
        # remainders
        ("20 % 6", "2"),
        ("17%5", "2"),
        ("17 %5", "2"),
        ("17 % (2 + 3)", "2"),
        ("17 % sqrt(25)", "2"),
        ("2^3 % 5", "3"),
        ("17 mod 5", "2"),
        ("17 mod -5", "-3"),
        ("17 MOD 5 + 1", "3"),
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
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("200 + 10%", "write 200 + 10% of 200, or 200 + 0.1"),
        ("100 - 20% + 5", "write 100 - 20% of 100, or 100 - 0.2"),
        ("100 + -5%", "write 100 + -5% of 100, or 100 + -0.05"),
        ("100 + (5% + 3%)", "write 100 + 8% of 100, or 100 + 0.08"),
        ("100 - 50% / 2", "write 100 - 25% of 100, or 100 - 0.25"),
        (f"{'9' * 40} + 1%", "write x + 1% of x, or x + 0.01"),
        ("100 / 15% of 80", "put parentheses"),
        ("100 // 15% of 80", "put parentheses"),
        ("100 mod 15% of 80", "put parentheses"),
        ("15% of 80 % 7", "put parentheses"),
        ("15% of 80 // 7", "put parentheses"),
        ("2 ^ 50% of 4", "put parentheses"),
        ("2 ^ 50%", "put parentheses"),
        ("17 % -5", "write mod for the remainder, or '% - 5' for a percentage"),
        ("20% 80", "write '% of 80' for a percentage, or mod for the remainder"),
        ("max(1,234)", "write 1234 or 1, 234"),
        ("log(1,024)", "write 1024 or 1, 024"),
        ("max(1,234, 5)", "write 1234 or 1, 234"),
        ("0,500 * 2", "write 0.500 with a point"),
    ],
)
def test_what_has_two_readings_is_refused_in_words(expression, advice):
    with pytest.raises(CalculationError, match="ambiguous") as caught:
        evaluate(expression)
    assert advice in str(caught.value)
    assert len(str(caught.value)) < 200


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
        ("1e9999", TOO_LARGE),
        ("1e999999999", TOO_LARGE),
        ("1e99999999999999999999", TOO_LARGE),
        ("1e-999999999", "the number is too small"),
        ("1e-99999999999999999999", "the number is too small"),
        ("10.0**40000", TOO_LARGE),
        ("1.5 ** 10 ** 4000", TOO_LARGE),
        ("exp(10^6)", TOO_LARGE),
        ("exp(-10^6)", "the number is too small"),
        ("0.1 ^ 30000", "the number is too small"),
        ("sin(10^13)", "an angle is at most 1000000000000 radians"),
        ("floor(exp(500))", "only 45 digits of 1.40359221785e+217 are known"),
        ("exp(500) mod 7", "only 45 digits of"),
        ("round(1.5, 10**9)", "round takes at most 100 whole digits"),
        ("round(5, -10**9)", "round takes at most 100 whole digits"),
        ("round(5, 0.5)", "round takes at most 100 whole digits"),
        (f"10**{MAX_RESULT_DIGITS}", "the result has about 4001 digits: too long to write out"),
        ("(" * 10_000 + ")" * 10_000, "expression too long: 20000 characters, at most 500"),
        ("(" * 200, "nested too deeply: at most 50 parentheses"),
        ("2^1" + "^1" * 100, "the expression has too many parts"),
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
        ("mod(17, 5)", "cannot read the expression"),
        ("5 of 3", "'of' needs a percentage before it"),
        ("5%%", "cannot read the expression"),
        ("17 mod", "cannot read the expression"),
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
        ("log(8, -1)", "log(8, -1) is not defined"),
        ("tan(pi / 2)", "tan(1.57079632679) is not defined"),
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
