"""Rewriting arithmetic as people write it into arithmetic that Python's parser reads.

`1,234 × 2^3 =` becomes `1234 * 2 ** 3`. The text is split into tokens. Only numbers, known names
and arithmetic operators pass. Quotes, brackets, attributes, keywords and all other syntax are
refused before any parser sees them.
"""

import re
from collections.abc import Collection

MAX_CHARACTERS = 500
"""The longest expression that is accepted."""
MAX_NESTING = 50
"""The deepest nesting of parentheses."""


class CalculationError(ArithmeticError):
    """The expression cannot be evaluated. The message is one short sentence for the model."""


_SYMBOLS = str.maketrans(
    {"×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", "^": "**", "π": " pi "}
)
_HEXADECIMAL = re.compile(r"(?<![0-9.,])0[xX][0-9a-fA-F]")
# The letter x where it can only mean "times": between numbers or parentheses.
_TIMES = re.compile(r"(?<=[0-9)])\s*[xX]\s*(?=[0-9(.])")
_REST = (
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<operator>\*\*|//|[-+*/%(),])"
)
_IN_CALL = re.compile(rf"\s*(?:{_REST})")
# Outside a call's arguments a comma can only group thousands.
_ELSEWHERE = re.compile(
    rf"\s*(?:(?P<grouped>[0-9]{{1,3}}(?:,[0-9]{{3}})+(?![0-9,])(?:\.[0-9]*)?)|{_REST})"
)


def normal_form(expression: str, names: Collection[str]) -> str:
    """Return the expression in Python's syntax, its tokens separated by single spaces.

    names: the functions and constants that may occur, in lower case. `^` is power. `×`, `·`, `÷`,
    `−` and an `x` between numbers are operators. `15% of 80` is 15 / 100 * 80. Commas between
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
    return " ".join(_tokens(_TIMES.sub(" * ", text), names))


def _tokens(text: str, names: Collection[str]) -> list[str]:
    tokens: list[str] = []
    calls: list[bool] = []  # for each open parenthesis, whether it opens a function's arguments
    position = 0
    while position < len(text):
        match = (_IN_CALL if calls and calls[-1] else _ELSEWHERE).match(text, position)
        if match is None:
            raise CalculationError(f"unexpected {text[position:].strip()[0]!r}")
        position = match.end()
        kind, token = str(match.lastgroup), match[str(match.lastgroup)]
        if kind == "name":
            token = token.lower()
            if token == "of" and tokens and tokens[-1] == "%":
                tokens[-1:] = ["/", "100", "*"]
                continue
            if token not in names:
                raise CalculationError(f"unknown name {token[:40]!r}; known: {', '.join(names)}")
        elif kind == "operator":
            _nest(token, tokens, calls)
        else:
            token = _number(token)
        tokens.append(token)
    return tokens


def _nest(token: str, before: list[str], calls: list[bool]) -> None:
    """Update the stack of open parentheses."""
    if token == "(":
        calls.append(bool(before) and before[-1][0].isalpha())
        if len(calls) > MAX_NESTING:
            raise CalculationError(f"nested too deeply: at most {MAX_NESTING} parentheses")
    elif token == ")":
        if not calls:
            raise CalculationError("a ')' without its '('")
        calls.pop()


def _number(token: str) -> str:
    token = token.replace(",", "")
    # Python refuses integers with leading zeros.
    return str(int(token)) if token.isdigit() else token
