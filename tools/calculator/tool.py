"""The calculator tool: reads and evaluates arithmetic as people write it, such as `1,234 × 2^3 =`.

The model's text is never handed to `eval` or to Python's parser. It is split into tokens: numbers,
known names and arithmetic operators. Quotes, brackets, attributes, keywords and all other syntax
are refused there. `Reader` evaluates the tokens while it reads them. Length, depth and the size of
every number are bounded, so no expression takes long.

Where people read a text in two ways that differ, it is refused in words. Percentages are the
main case: `200 + 10%` is 220 on a pocket calculator and 200.1 in a spreadsheet.
"""

import decimal
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from caesura.tools.calculator.functions import (
    BINARY,
    CONSTANTS,
    FUNCTIONS,
    TOO_LARGE,
    TOO_SMALL,
    CalculationError,
    Number,
    bounded,
    call,
    divide,
    format_number,
    multiply,
    negative_of,
    number,
)
from caesura.tools.services import Services, ToolSettings
from caesura.tools.tool import Tool, tool

MAX_CHARACTERS = 500
"""The longest expression that is accepted."""
MAX_NESTING = 50
"""The deepest nesting of parentheses, and of powers in exponents."""
CANNOT_READ = "cannot read the expression; write it like 2 * (3 + 4)"

_SYMBOLS = str.maketrans(
    {"×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", "^": "**", "π": " pi "}
)
_HEXADECIMAL = re.compile(r"(?<![0-9.,])0[xX][0-9a-fA-F]")
# The letter x where it can only mean "times": between numbers, percentages or parentheses.
_TIMES = re.compile(r"(?<=[0-9)%])\s*[xX]\s*(?=[0-9(.])")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])(?:\.[0-9]*)?")
# In a function's arguments a comma may separate two of them as well as group thousands.
_UNCLEAR_COMMA = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])")
_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<operator>\*\*|//|[-+*/%(),])"
)
_NAMES = (*FUNCTIONS, *CONSTANTS)
_WORDS = ("of", "mod")
_TWO_READINGS = "the order is ambiguous: put parentheses around what is worked out first"


@dataclass(frozen=True, slots=True)
class Token:
    """A number, a name, an operator or the end of the text; `after_space` tells what precedes."""

    kind: Literal["number", "name", "operator", "end"]
    text: str
    after_space: bool


@dataclass(frozen=True, slots=True)
class Part:
    """The value of a part of the text, and whether it is written as a percentage."""

    value: Number
    percentage: bool = False
    of: bool = False
    """Whether it is a share, as in `15% of 80`."""


def tokens_of(expression: str) -> list[Token]:
    """Return the tokens of a text; a token of the kind `end` is the last.

    `×`, `·`, `÷`, `−` and an `x` between numbers are operators, `^` is `**`. Commas between
    thousands and a trailing `=` or `?` are dropped. Raises CalculationError.
    """
    if len(expression) > MAX_CHARACTERS:
        raise CalculationError(
            f"expression too long: {len(expression)} characters, at most {MAX_CHARACTERS}"
        )
    text = expression.translate(_SYMBOLS).rstrip("=? \t\r\n").strip()
    if not text:
        raise CalculationError("the expression is empty")
    if _HEXADECIMAL.search(text):
        raise CalculationError("write numbers in decimal")
    return [*_split(_TIMES.sub(" * ", text)), Token("end", "", after_space=False)]


def _split(text: str) -> Iterator[Token]:
    calls: list[bool] = []  # for each open parenthesis, whether it opens a function's arguments
    after_name = False
    position = 0
    while position < len(text):
        start = position + len(text[position:]) - len(text[position:].lstrip())
        grouped = _grouped(text, start, in_call=bool(calls) and calls[-1])
        match = grouped or _TOKEN.match(text, start)
        if match is None:
            raise CalculationError(f"unexpected {text[start]!r}")
        token = match.group()
        if grouped or match.lastgroup == "number":
            yield Token("number", token.replace(",", ""), start > position)
        elif match.lastgroup == "name":
            yield Token("name", _known(token.lower()), start > position)
        else:
            _nest(token, calls, after_name)
            yield Token("operator", token, start > position)
        after_name = not grouped and match.lastgroup == "name" and token.lower() not in _WORDS
        position = match.end()


def _grouped(text: str, start: int, in_call: bool) -> re.Match[str] | None:
    """Return the match of a number with commas between thousands, if one begins here."""
    if in_call:
        if unclear := _UNCLEAR_COMMA.match(text, start):
            one, two = unclear.group().replace(",", ""), unclear.group().replace(",", ", ")
            raise CalculationError(
                f"{unclear.group()!r} in a function is ambiguous: write {one} or {two}"
            )
        return None
    grouped = _GROUPED.match(text, start)
    if grouped and grouped.group().startswith("0"):
        point = grouped.group().replace(",", ".", 1)
        raise CalculationError(f"{grouped.group()!r} is ambiguous: write {point} with a point")
    return grouped


def _known(name: str) -> str:
    if name not in _NAMES and name not in _WORDS:
        raise CalculationError(f"unknown name {name[:40]!r}; known: {', '.join(_NAMES)}")
    return name


def _nest(token: str, calls: list[bool], after_name: bool) -> None:
    """Update the stack of open parentheses."""
    if token == "(":
        calls.append(after_name)
        if len(calls) > MAX_NESTING:
            raise CalculationError(f"nested too deeply: at most {MAX_NESTING} parentheses")
    elif token == ")":
        if not calls:
            raise CalculationError("a ')' without its '('")
        calls.pop()


class Reader:
    """Reads and evaluates one expression by recursive descent, a method for each precedence."""

    def __init__(self, expression: str) -> None:
        self._tokens = tokens_of(expression)
        self._position = 0
        self._exponents = 0

    def value(self) -> Number:
        """Return the expression's value. Raises CalculationError, or what the arithmetic raises."""
        part = self._sum()
        if self._next.kind != "end":
            raise CalculationError(CANNOT_READ)
        return part.value

    def checked(self, value: Number) -> Number:
        """Return the value of a part, if it is within the limits of size."""
        return bounded(value)

    @property
    def _next(self) -> Token:
        return self._tokens[self._position]

    def _takes(self, *texts: str) -> str | None:
        """Go on behind the next token and return its text, if it is one of these."""
        if self._next.kind in ("end", "number") or self._next.text not in texts:
            return None
        self._position += 1
        return self._tokens[self._position - 1].text

    def _sum(self) -> Part:
        left = self._product()
        while sign := self._takes("+", "-"):
            right = self._product()
            value = self.checked(BINARY[sign](left.value, right.value))
            if right.percentage and not left.percentage:
                self._refuse_two_readings(left.value, sign, right.value, value)
            left = Part(value, left.percentage and right.percentage)
        return left

    def _refuse_two_readings(self, left: Number, sign: str, right: Number, value: Number) -> None:
        """Refuse `200 + 10%`, and not `1 + 10%`, whose two readings agree."""
        if BINARY[sign](left, self.checked(multiply(left, right))) != value:
            base, share = _short(left), _short(multiply(right, 100))
            raise CalculationError(
                f"'{sign} {share}%' is ambiguous: write {base} {sign} {share}% of {base},"
                f" or {base} {sign} {_short(right)}"
            )

    def _product(self) -> Part:
        left = self._share()
        while operator := self._operator(left):
            right = self._share()
            if right.of and operator in ("/", "//", "%"):
                raise CalculationError(_TWO_READINGS)
            value = self.checked(BINARY[operator](left.value, right.value))
            # Half a percentage is one; a percentage times an amount is an amount.
            shares = left.percentage and not right.percentage and operator == "/"
            left = Part(value, shares, left.of or right.of)
        return left

    def _operator(self, left: Part) -> str | None:
        """Go on behind an operator of a product, and return it."""
        operator = self._takes("*", "/", "//", "mod") or (
            self._takes("%") if self._is_modulo() else None
        )
        operator = "%" if operator == "mod" else operator
        if left.of and operator in ("//", "%"):
            raise CalculationError(_TWO_READINGS)
        return operator

    def _share(self) -> Part:
        """Read `15% of 80`, or what is no share."""
        part = self._signed()
        if self._next.text != "of":
            return part
        if not part.percentage:
            raise CalculationError("'of' needs a percentage before it, as in 15% of 80")
        self._position += 1
        return Part(self.checked(multiply(part.value, self._share().value)), of=True)

    def _signed(self) -> Part:
        negative = False
        while sign := self._takes("+", "-"):
            negative ^= sign == "-"
        part = self._power()
        return Part(negative_of(part.value), part.percentage) if negative else part

    def _power(self) -> Part:
        base = self._percentage()
        if not self._takes("**"):
            return base
        self._exponents += 1
        if self._exponents > MAX_NESTING:
            raise CalculationError("the expression has too many parts")
        exponent = self._signed()
        self._exponents -= 1
        if self._tokens[self._position - 1].text == "%":
            raise CalculationError(_TWO_READINGS)
        return Part(self.checked(BINARY["**"](base.value, exponent.value)))

    def _percentage(self) -> Part:
        part = self._atom()
        if self._next.text != "%" or self._is_modulo():
            return part
        self._position += 1
        return Part(self.checked(divide(part.value, 100)), percentage=True)

    def _is_modulo(self) -> bool:
        """Tell whether the next token is a `%` that asks for a remainder, as in `17 % 5`.

        Before an operator or the end it is a percent sign. Raises CalculationError for texts that
        people read both ways: `20% 80` and `17 % -5`.
        """
        sign = self._next
        if sign.text != "%":
            return False
        after = self._tokens[self._position + 1]
        if after.text in ("+", "-"):
            operand = self._tokens[self._position + 2]
            if sign.after_space and after.after_space and not operand.after_space:
                raise CalculationError(
                    f"'% {after.text}{operand.text}' is ambiguous: write mod for the remainder,"
                    f" or '% {after.text} {operand.text}' for a percentage"
                )
            return False
        if after.text in _WORDS or not (after.kind in ("number", "name") or after.text == "("):
            return False
        if after.after_space and not sign.after_space:
            raise CalculationError(
                f"'% {after.text}' is ambiguous: write '% of {after.text}' for a percentage,"
                " or mod for the remainder"
            )
        return True

    def _atom(self) -> Part:
        token = self._next
        self._position += 1
        if token.kind == "number":
            return Part(number(token.text))
        if token.text == "(":
            inner = self._sum()
            self._expect(")")
            return Part(inner.value, inner.percentage)
        if token.text in FUNCTIONS:
            return Part(call(token.text, self._arguments()))
        if token.text in CONSTANTS:
            return Part(CONSTANTS[token.text])
        raise CalculationError(CANNOT_READ)

    def _arguments(self) -> list[Number]:
        self._expect("(")
        if self._takes(")"):
            return []
        arguments = [self._sum().value]
        while self._takes(","):
            arguments.append(self._sum().value)
        self._expect(")")
        return arguments

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise CalculationError(CANNOT_READ)


def _short(value: Number) -> str:
    """Return a number as text for a message, or `x` for a long one."""
    text = format_number(value)
    return text if len(text) <= 20 else "x"


def evaluate(expression: str) -> str:
    """Return the expression's value as text.

    Raises CalculationError, and no other exception, for a text without a value.
    """
    try:
        return format_number(Reader(expression).value())
    except ZeroDivisionError:
        raise CalculationError("division by zero") from None
    except (OverflowError, decimal.Overflow):
        raise CalculationError(TOO_LARGE) from None
    except decimal.Underflow:
        raise CalculationError(TOO_SMALL) from None
    except (ValueError, MemoryError, RecursionError):
        raise CalculationError(CANNOT_READ) from None


@tool(safe_to_repeat=True)
def calculator(expression: str) -> str:
    """Work out an arithmetic expression exactly and return its value.

    Args:
        expression: for example "12 * (3 + 4.5) / 2", "2^10", "15% of 80", "1200 * 5% + 30",
            "17 mod 5" or "sqrt(2) + pi". Functions: sqrt, abs, round (halves to even), min, max,
            floor, ceil, log (natural, or log(x, base)), log2, log10, exp, sin, cos, tan
            (radians), factorial, comb, gcd. Constants: pi, e.
    """
    return evaluate(expression)


Settings = ToolSettings


def make(settings: ToolSettings, services: Services) -> Tool:
    """Return the calculator, for `Toolset`."""
    return calculator
