"""Requests for charts: "Draw a bar chart of oak 12, elm 7 and ash 9."."""

from __future__ import annotations

import random
from typing import Any

from tasks.exchange import Call, Exchange, fill, vary
from tasks.plain.lookups import population, price_of
from tasks.words import city, integer, made_up, person, price, thing

from .files import picture

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
# What a user calls a chart of each mark.
_KINDS = {
    "bar": ("bar chart",) * 4 + ("bar graph", "bar plot", "bar diagram"),
    "line": ("line chart",) * 3 + ("line graph", "line plot"),
    "point": ("point chart", "point chart", "scatter plot", "scatter chart", "dot plot"),
    "area": ("area chart", "area chart", "area plot"),
}
_ASK = (
    "draw a {m} of {d}.", "draw a {m} of {d}.", "make a {m} of {d}.", "draw a {m}: {d}.",
    "make a {m}: {d}.", "plot a {m} of {d}.", "show me a {m} of {d}.", "make a {m} for {d}.",
    "create a {m} with {d}.", "create a {m} of {d}.", "I need a {m} of {d}.",
    "render a {m} of {d}.", "can you draw a {m} of {d}?", "draw {d} as a {m}.", "{m} of {d}",
    "{m} of {d}, please.", "show {d} as a {m}.", "give me a {m} for {d}.", "{m}: {d}",
    "draw me a {m} with {d}.", "make me a {m} of {d}.", "plot {d} as a {m}.",
    "I want a {m} of {d}.", "draw a {m} of the {t}: {d}.", "make a {m} of my {t}: {d}.",
    "draw a {m} with the values {d}.", "show the {t} in a {m}: {d}.", "I have {d}. Draw a {m}.",
)  # fmt: skip
_PLAIN = (
    "draw a chart of {d}.", "plot {d}.", "make a chart of {d}.", "show {d} in a chart.",
    "chart {d}.", "can you plot {d}?", "draw a graph of {d}.", "make a graph of {d}.",
    "draw a diagram of {d}.", "draw a chart of the {t}: {d}.", "chart of {d}",
    "make a chart of my {t}: {d}.", "plot the {t}: {d}.", "show me a chart of {d}.",
)  # fmt: skip
_LOOKED_UP = (
    "draw a {m} of {w}.", "make a {m} of {w}.", "show {w} in a {m}.",
    "look up {w} and draw a {m}.", "draw {w} as a {m}.",
)  # fmt: skip
_TOPICS = (
    "sales", "votes", "temperatures", "points", "visitors", "results", "costs", "numbers", "sums",
    "scores", "prices", "trees", "steps", "hours", "rainfall", "expenses", "grades",
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
    forms, topic = _PLAIN if plain else _ASK, rng.choice(_TOPICS)
    user = fill(rng, forms, m=rng.choice(_KINDS[mark]), d=_said(rng, rows), t=topic)
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
    user = fill(
        rng, _LOOKED_UP, m=rng.choice(_KINDS[mark]), w=what.format(first.subject, second.subject)
    )
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
    forms = ("now as a {m}.", "and as a {m}?", "the same as a {m}, please.", "make it a {m}.")
    user = fill(rng, forms, m=rng.choice(_KINDS[mark])).replace("a area", "an area")
    drawn = _answered(rng, user, mark, rows)
    return Exchange("follow-up", drawn.user, drawn.answer, drawn.steps, drawn.values)
