"""The calculator tool: safe arithmetic on a model's text.

Length, depth and the size of every number are bounded, so no expression takes long.
"""

import decimal

from caesura.tools.calculator.expression import CANNOT_READ, Reader
from caesura.tools.calculator.functions import (
    TOO_LARGE,
    TOO_SMALL,
    CalculationError,
    format_number,
)
from caesura.tools.services import Services, ToolSettings
from caesura.tools.tool import Tool, tool


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
