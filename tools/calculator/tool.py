"""The calculator tool: safe arithmetic on a model's text.

The text is never handed to `eval`. It is rewritten from known tokens, parsed, and evaluated node
by node; a node of any other kind is an error. Length, depth, steps and the size of every number
are bounded, so no expression takes long.
"""

import ast
import math
from contextlib import suppress

from caesura.tools.calculator.expression import CalculationError, normal_form
from caesura.tools.calculator.functions import (
    BINARY,
    CONSTANTS,
    FUNCTIONS,
    TOO_LARGE,
    UNARY,
    Number,
    bounded,
)
from caesura.tools.services import Services, ToolSettings
from caesura.tools.tool import Tool, tool

MAX_STEPS = 500
"""How many nodes of the syntax tree are evaluated."""
MAX_DEPTH = 260
"""Depth limit of the tree: it allows a sum of one-digit numbers of the maximum length."""
MAX_RESULT_DIGITS = 4_000
"""The longest integer that is written out; Python itself refuses from 4,300 digits."""
PARSE_TRIES = 10
SIGNIFICANT_DIGITS = 12
"""Digits shown of a float, few enough to hide rounding errors."""

_NAMES = (*FUNCTIONS, *CONSTANTS)
_CANNOT_READ = "cannot read the expression; write it like 2 * (3 + 4)"


class Evaluator:
    """Evaluates one expression's syntax tree; `steps` counts the nodes evaluated so far."""

    def __init__(self) -> None:
        self.steps = 0

    def value(self, node: ast.expr, depth: int = 0) -> Number:
        """Return the node's value. Raises CalculationError, or what the arithmetic raises."""
        self.steps += 1
        if self.steps > MAX_STEPS or depth > MAX_DEPTH:
            raise CalculationError("the expression has too many parts")
        deeper = depth + 1
        match node:
            case ast.Constant(value=value):
                return bounded(value)
            case ast.Name(id=name) if name in CONSTANTS:
                return CONSTANTS[name]
            case ast.UnaryOp(op=op, operand=operand) if type(op).__name__ in UNARY:
                return bounded(UNARY[type(op).__name__](self.value(operand, deeper)))
            case ast.BinOp(left=left, op=op, right=right) if type(op).__name__ in BINARY:
                operate = BINARY[type(op).__name__]
                return bounded(operate(self.value(left, deeper), self.value(right, deeper)))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
                return _call(name, [self.value(argument, deeper) for argument in args])
        raise CalculationError(_CANNOT_READ)


def evaluate(expression: str) -> str:
    """Return the expression's value as text.

    Raises CalculationError, and no other exception, for a text without a value.
    """
    try:
        return format_number(Evaluator().value(_tree(normal_form(expression, _NAMES))))
    except ZeroDivisionError:
        raise CalculationError("division by zero") from None
    except OverflowError:
        raise CalculationError(TOO_LARGE) from None
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise CalculationError(_CANNOT_READ) from None


def _tree(text: str) -> ast.expr:
    for _ in range(PARSE_TRIES - 1):
        with suppress(SystemError):  # CPython before 3.13 mixes up trees of several threads
            return ast.parse(text, mode="eval").body
    return ast.parse(text, mode="eval").body


def format_number(value: Number) -> str:
    """Return a number as text: whole numbers exact, other floats rounded.

    Raises CalculationError for an integer of more than MAX_RESULT_DIGITS digits.
    """
    if isinstance(value, float):
        if not value.is_integer() or abs(value) >= 2**53:
            return format(value, f".{SIGNIFICANT_DIGITS}g")
        value = int(value)
    digits = int(value.bit_length() * math.log10(2)) + 1
    if digits > MAX_RESULT_DIGITS:
        raise CalculationError(f"the result has about {digits} digits: too long to write out")
    return str(value)


@tool(safe_to_repeat=True)
def calculator(expression: str) -> str:
    """Work out an arithmetic expression exactly and return its value.

    Args:
        expression: for example "12 * (3 + 4.5) / 2", "2^10", "15% of 80" or "sqrt(2) + pi".
            Functions: sqrt, abs, round, min, max, floor, ceil, log (natural, or log(x, base)),
            log2, log10, exp, sin, cos, tan (radians), factorial, comb, gcd. Constants: pi, e.
    """
    return evaluate(expression)


Settings = ToolSettings


def make(settings: ToolSettings, services: Services) -> Tool:
    """Return the calculator, for `Toolset`."""
    return calculator


def _call(name: str, arguments: list[Number]) -> Number:
    function, least, most = FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise CalculationError(f"{name} takes {wanted} arguments, got {len(arguments)}")
    try:
        return bounded(function(*arguments))
    except (ValueError, TypeError):
        shown = ", ".join(format_number(argument) for argument in arguments)
        raise CalculationError(f"{name}({shown}) is not defined") from None
