"""Requests for charts: "Draw a bar chart of oak 12, elm 7 and ash 9."."""

from __future__ import annotations

import random
from typing import Any

from .exchange import Call, Exchange, fill, vary
from .files import picture
from .lookups import population, price_of
from .words import city, integer, made_up, person, price, thing

MARKS = ("bar", "bar", "bar", "bar", "line", "line", "point", "area")
_SETS = (
    ("oak", "elm", "ash", "beech", "pine", "birch", "maple", "fir"),
    ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    ("January", "February", "March", "April", "May", "June", "July", "August"),
    ("red", "blue", "green", "yellow", "black", "white", "pink", "grey"),
    ("apples", "pears", "plums", "cherries", "grapes", "lemons", "melons"),
    ("north", "south", "east", "west", "centre"),
    ("Q1", "Q2", "Q3", "Q4"),
)
_ASK = (
    "draw a {m} chart of {d}.", "draw a {m} chart of {d}.", "make a {m} chart of {d}.",
    "make a {m} chart: {d}.", "plot a {m} chart of {d}.", "show me a {m} chart of {d}.",
    "create a {m} chart with {d}.", "I need a {m} chart of {d}.", "render a {m} chart of {d}.",
    "can you draw a {m} chart of {d}?", "draw {d} as a {m} chart.", "{m} chart of {d}, please.",
    "show {d} as a {m} chart.", "give me a {m} chart for {d}.",
)  # fmt: skip
_PLAIN = (
    "draw a chart of {d}.", "plot {d}.", "make a chart of {d}.", "show {d} in a chart.",
    "chart {d}.", "can you plot {d}?",
)  # fmt: skip
_LOOKED_UP = (
    "draw a {m} chart of {w}.", "make a {m} chart of {w}.", "show {w} in a {m} chart.",
    "look up {w} and draw a {m} chart.",
)  # fmt: skip
Rows = list[tuple[str, int | float]]


def _number(rng: random.Random) -> int | float:
    if rng.random() < 0.75:
        return integer(rng, rng.choice((1, 1, 2, 2, 2, 3, 4)))
    value = float(price(rng))
    return int(value) if value.is_integer() else value


def _names(rng: random.Random, count: int) -> list[str]:
    """Return labels that differ: from a known set, made-up words, years, cities or people."""
    roll = rng.random()
    if roll < 0.4:
        known = rng.choice([names for names in _SETS if len(names) >= count])
        start = rng.randrange(len(known) - count + 1)
        return list(known[start : start + count])
    if roll < 0.5:
        first = rng.randrange(1990, 2040)
        return [str(first + place) for place in range(count)]
    kind = rng.choice((made_up, made_up, city, person, lambda r: thing(r)[1]))
    while len(names := {kind(rng): None for _ in range(count)}) < count:
        pass
    return list(names)


def _said(rng: random.Random, rows: Rows) -> str:
    """Write the rows as a user would: "oak 12, elm 7 and ash 9"."""
    numbered = any(name.isdigit() for name, _ in rows)
    sign = rng.choice(
        (": ", " = ", "=") if numbered else (" ", " ", " ", ": ", " = ", "=", " with ")
    )
    parts = [f"{name}{sign}{value}" for name, value in rows]
    if rng.random() < 0.6:
        return ", ".join(parts[:-1]) + rng.choice((" and ", " and ", ", and ")) + parts[-1]
    return ", ".join(parts)


def call_of(rng: random.Random, mark: str, rows: Rows) -> tuple[Call, str]:
    """Return the call that draws the rows, and where the picture stands."""
    where, result = picture(rng, 640, 400)
    values = [{"name": name, "value": value} for name, value in rows]
    spec: dict[str, Any] = {"mark": mark, "data": {"values": values}}
    return Call("render_chart", {"spec": spec}, result), where


def chart(rng: random.Random) -> Exchange:
    """Return a request for a chart of numbers that are given, or that are looked up first."""
    if rng.random() < 0.15:
        return _looked_up(rng)
    rows = [(name, _number(rng)) for name in _names(rng, rng.choice((2, 3, 3, 3, 4, 4)))]
    mark = "bar" if rng.random() < 0.2 else rng.choice(MARKS)
    plain = mark == "bar" and rng.random() < 0.3
    user = fill(rng, _PLAIN if plain else _ASK, m=mark, d=_said(rng, rows))
    return _answered(rng, vary(rng, user.replace("a area", "an area")), mark, rows)


def _answered(rng: random.Random, user: str, mark: str, rows: Rows) -> Exchange:
    call, where = call_of(rng, mark, rows)
    return Exchange("chart", user, (f"The chart is at {where}.",), ((call,),), (where,))


def _looked_up(rng: random.Random) -> Exchange:
    """Return a request whose numbers other tools know."""
    kind = rng.choice((population, price_of))
    while len(names := {(found := kind(rng)).subject: found for _ in range(2)}) < 2:
        pass
    first, second = names.values()
    what = "the populations of {} and {}" if kind is population else "the prices of a {} and a {}"
    rows: Rows = []
    for found in (first, second):
        value = float(found.call.result)
        rows.append((found.subject, int(value) if value.is_integer() else value))
    mark = rng.choice(MARKS)
    user = fill(rng, _LOOKED_UP, m=mark, w=what.format(first.subject, second.subject))
    user = user.replace("a area", "an area")
    for vowel in "aeiou":
        user = user.replace(f"prices of a {vowel}", f"prices of an {vowel}")
        user = user.replace(f" and a {vowel}", f" and an {vowel}")
    drawn = _answered(rng, vary(rng, user), mark, rows)
    steps = ((first.call, second.call), *drawn.steps)
    return Exchange("chart", drawn.user, drawn.answer, steps, drawn.values)


def follow_up(rng: random.Random, before: Exchange) -> Exchange | None:
    """Return "Now as a line chart.": the same numbers with another mark."""
    last = before.calls[-1] if before.calls else None
    if last is None or last.name != "render_chart" or before.task == "error":
        return None
    spec = last.arguments["spec"]
    mark = rng.choice([mark for mark in ("bar", "line", "point", "area") if mark != spec["mark"]])
    rows = [(row["name"], row["value"]) for row in spec["data"]["values"]]
    forms = ("now as a {m} chart.", "and as a {m} chart?", "the same as a {m} chart, please.")
    user = fill(rng, forms, m=mark).replace("a area", "an area")
    drawn = _answered(rng, user, mark, rows)
    return Exchange("follow-up", drawn.user, drawn.answer, drawn.steps, drawn.values)
