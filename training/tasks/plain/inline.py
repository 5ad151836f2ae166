"""Sentences in whose middle the model calls the calculator and goes on with the result."""

from __future__ import annotations

import random
from collections.abc import Callable

from tasks.exchange import Call, Exchange, Piece, exact, fill, vary
from tasks.words import CONTAINERS, integer, person, small, thing

# What a fact is called in the question, its sentence up to the call, the call, what follows.
Fact = tuple[str, str, Call, str]

_WRITE = (
    "write a sentence about {t}.", "write a sentence about {t}.", "write one sentence about {t}.",
    "write a short sentence about {t}.", "make a sentence about {t}.",
    "one sentence about {t}, please.", "describe {t} in one sentence.", "say something about {t}.",
    "compose a sentence about {t}.", "can you write a sentence about {t}?",
    "I need a sentence about {t}.", "give me a sentence about {t}.",
    "tell me in one sentence about {t}.", "in one sentence: {t}.", "write about {t}.",
    "write me a sentence about {t}.", "a sentence about {t}, please.", "a sentence about {t}",
    "I want a sentence about {t}.", "make one sentence about {t}.", "form a sentence about {t}.",
    "tell me something about {t}.", "write something about {t}.",
)  # fmt: skip
_COMPLETE = (
    "complete in one sentence: {t}", "complete the sentence: {t}", "finish this sentence: {t}",
    "complete: {t}", "continue in one sentence: {t}", "go on: {t}", "complete this: {t} ...",
)  # fmt: skip


def _boxes(rng: random.Random) -> Fact:
    (_, inside), outer = thing(rng), rng.choice(list(CONTAINERS.values()))
    a, b = small(rng), small(rng)
    topic = f"{a} {outer} of {b} {inside}"
    return topic, f"{topic} hold", exact(f"{a}*{b}"), f" {inside}"


def _trip(rng: random.Random) -> Fact:
    what = rng.choice(("train", "car", "bus", "plane", "ship"))
    a, b = integer(rng, rng.choice((2, 3))), integer(rng, rng.choice((1, 1, 2)), low=2)
    topic = f"a {what} that goes {a} km an hour for {b} hours"
    return topic, f"{topic} covers", exact(f"{a}*{b}"), " km"


def _shared(rng: random.Random) -> Fact:
    (_, things), b = thing(rng), integer(rng, rng.choice((1, 1, 2)), low=2)
    a = b * small(rng)
    who = rng.choice(("friends", "children", "players", "people"))
    topic = f"{b} {who} who share {a} {things}"
    return topic, f"{topic} get", exact(f"{a}/{b}"), f" {things} each"


def _colours(rng: random.Random) -> Fact:
    (_, things), a, b = thing(rng), small(rng), small(rng)
    x, y = rng.sample(("red", "blue", "green", "yellow", "white", "black", "old", "new"), 2)
    topic = f"{a} {x} and {b} {y} {things}"
    return topic, f"{topic} make", exact(f"{a}+{b}"), f" {things}"


def _shop(rng: random.Random) -> Fact:
    (_, things), a, b = thing(rng), small(rng), small(rng)
    who = rng.choice(("a shop", "a market", person(rng)))
    topic = f"{who} selling {a} {things} at {b} each"
    return topic, f"{topic} earns", exact(f"{a}*{b}"), ""


def _gone(rng: random.Random) -> Fact:
    (_, things), who = thing(rng), person(rng)
    b, a = sorted((small(rng), small(rng)))
    topic = f"{who} losing {b} of {a} {things}"
    return topic, f"{topic} keeps", exact(f"{a}-{b}"), f" {things}"


def _ground(rng: random.Random) -> Fact:
    what, a, b = rng.choice(("garden", "room", "field", "floor")), small(rng), small(rng)
    topic = f"a {what} of {a} by {b} metres"
    return topic, f"{topic} covers", exact(f"{a}*{b}"), " square metres"


def _span(rng: random.Random) -> Fact:
    unit, smaller, factor = rng.choice(
        (("hours", "minutes", 60), ("minutes", "seconds", 60), ("days", "hours", 24),
         ("weeks", "days", 7), ("years", "months", 12))
    )  # fmt: skip
    a = small(rng)
    return f"{a} {unit}", f"{a} {unit} are", exact(f"{a}*{factor}"), f" {smaller}"


FACTS: tuple[Callable[[random.Random], Fact], ...] = (
    _boxes, _boxes, _boxes, _trip, _shared, _colours, _shop, _gone, _ground, _span,
)  # fmt: skip


def sentence(facts: list[Fact]) -> tuple[Piece, ...]:
    """Return the sentence about the facts, with a call where each result has to stand."""
    pieces: list[Piece] = []
    for place, (_, lead, call, rest) in enumerate(facts):
        lead = lead[0].upper() + lead[1:] if place == 0 else f"and {lead}"
        tail = " " if place < len(facts) - 1 else "."
        pieces += [lead + " ", call, f" {call.result}{rest}{tail}"]
    return tuple(pieces)


def request(rng: random.Random, facts: list[Fact]) -> str:
    """Return what a user writes to get a sentence about the facts."""
    if len(facts) == 1 and rng.random() < 0.25:
        return vary(rng, fill(rng, _COMPLETE, t=facts[0][1]))
    glue = " and about " if rng.random() < 0.4 else " and "
    return vary(rng, fill(rng, _WRITE, t=glue.join(fact[0] for fact in facts)))


def inline(rng: random.Random) -> Exchange:
    """Return a request for a sentence that contains one or two calculations."""
    facts = [rng.choice(FACTS)(rng) for _ in range(1 if rng.random() < 0.7 else 2)]
    values = tuple(fact[2].result for fact in facts)
    return Exchange("inline", request(rng, facts), sentence(facts), (), values)
