"""Arithmetic expressions and their values, which agree with those of the calculator tool."""

from __future__ import annotations

import ast
import operator
import random
from collections.abc import Callable

from .words import integer

Number = int | float
_OPERATORS: dict[type[ast.AST], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
# How a user may write each operator; spaces stand around every one of them.
SPELLINGS = {
    "+": ("+", "+", "plus"),
    "-": ("-", "-", "minus"),
    "*": ("*", "*", "x", "×", "times", "multiplied by"),
    "/": ("/", "/", "÷", "divided by", "over"),
    "%": ("%", "mod", "modulo"),
    "**": ("**", "^", "to the power of"),
}


def _value(node: ast.AST) -> Number:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("not an arithmetic expression")


def number_text(value: Number, places: int) -> str:
    """Write a number as a calculator does: a whole float without its fraction."""
    if isinstance(value, float):
        value = round(value, places)
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def calculate(expression: str, places: int = 10) -> str:
    """Return the result of an expression as text, or a text that starts with ``error:``."""
    try:
        return number_text(_value(ast.parse(expression, mode="eval").body), places)
    except ZeroDivisionError:
        return "error: division by zero"
    except (SyntaxError, ValueError, OverflowError) as error:
        return f"error: {error}"


def spell(rng: random.Random, tokens: list[str]) -> str:
    """Write the tokens of an expression as a user would: symbols or words, spaced or not."""
    words = rng.random() < 0.3
    gap = "" if not words and rng.random() < 0.45 else " "
    parts = []
    for token in tokens:
        if token not in SPELLINGS:
            parts.append(token)
            continue
        choices = SPELLINGS[token]
        spoken = [c for c in choices if c[-1].isalpha() and c != "x"]
        text = rng.choice(spoken if words and spoken else [c for c in choices if c not in spoken])
        spaced = text[-1].isalpha() and text != "x"
        parts.append(f" {text} " if spaced else f"{gap}{text}{gap}")
    return "".join(parts).replace("  ", " ")


def operand(rng: random.Random) -> str:
    """Return a number of up to six digits, now and then a decimal one."""
    if rng.random() < 0.15:
        return f"{integer(rng, rng.choice((1, 2, 3)))}.{rng.randrange(1, 100):02d}".rstrip("0")
    return str(integer(rng))


def expression(rng: random.Random) -> list[str]:
    """Return the tokens of a random expression with one to three operators."""
    roll = rng.random()
    if roll < 0.07:
        return [str(rng.randrange(2, 30)), "**", str(rng.randrange(2, 7))]
    if roll < 0.12:
        return [str(integer(rng, rng.choice((2, 3, 4)))), "%", str(integer(rng, 1, low=2))]
    if roll < 0.20:
        quotient, divisor = integer(rng), integer(rng, rng.choice((1, 1, 2, 3)), low=2)
        return [str(quotient * divisor), "/", str(divisor)]
    if roll < 0.68:
        return [operand(rng), rng.choice("+++---****/"), operand(rng)]
    a, b, c = (operand(rng) for _ in range(3))
    first, second = rng.choice("++--**/"), rng.choice("++--**/")
    if roll < 0.80:
        return [a, first, b, second, c]
    if roll < 0.88:
        return ["(", a, rng.choice("+-"), b, ")", rng.choice("***/"), c]
    if roll < 0.96:
        return [a, rng.choice("***/"), "(", b, rng.choice("+-"), c, ")"]
    return ["(", a, first, b, ")", rng.choice("**/"), "(", c, rng.choice("+-"), operand(rng), ")"]
