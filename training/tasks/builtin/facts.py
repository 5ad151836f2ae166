"""Facts about places, people, books and things: questions, and sentences that answer them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tasks.words import city, integer, made_up, person, thing


def _year(rng: random.Random) -> str:
    return str(rng.randrange(1000, 2030))


def _name(rng: random.Random) -> str:
    last = made_up(rng).capitalize()
    return f"{person(rng)} {last}" if rng.random() < 0.6 else last


def _count(rng: random.Random) -> str:
    return str(integer(rng, rng.choice((2, 2, 3, 3, 4))))


def _things(rng: random.Random) -> str:
    return thing(rng)[1]


def _word(rng: random.Random) -> str:
    return made_up(rng)


def _proper(rng: random.Random) -> str:
    return made_up(rng).capitalize()


def _work(rng: random.Random) -> str:
    return rng.choice(("a painter", "a singer", "a king", "a baker", "a doctor", "a poet")) + (
        f" from {city(rng)}"
    )


def _use(rng: random.Random) -> str:
    kind = rng.choice(("a tool for cutting", "a kind of", "a small box for", "a machine for"))
    return f"{kind} {thing(rng)[1]}"


def filled(rng: random.Random, text: str) -> str:
    """Return a text with its places, names and numbers filled in."""
    return text.format(
        c=city(rng), p=person(rng), y=_year(rng), w=made_up(rng), v=made_up(rng),
        n=_count(rng), t=_things(rng),
    )  # fmt: skip


def _kind(rng: random.Random) -> str:
    what = rng.choice(("a tree", "a metal", "a river", "a planet", "a spice", "an instrument"))
    more = rng.choice(("with {n} {t}", "that grows in {c}", "near {c}", "that is hard and {w}",
        "of the {w} family", "which {p} found in {y}", "made of {w} and {v}"))  # fmt: skip
    return f"{what} {filled(rng, more)}"


@dataclass(frozen=True)
class Relation:
    """Questions about ``{x}``, sentences that answer them with ``{v}``, and how to draw ``{v}``."""

    questions: tuple[str, ...]
    sentences: tuple[str, ...]
    value: Callable[[random.Random], str]


PLACE = (
    Relation(
        (
            "when was {x} founded?",
            "in which year was {x} founded?",
            "what year was {x} founded?",
            "do you know when {x} was founded?",
        ),
        ("{x} was founded in {v}.", "Settlers founded {x} in {v}.", "In {v} {x} was founded."),
        _year,
    ),
    Relation(
        (
            "who is the mayor of {x}?",
            "what is the name of the mayor of {x}?",
            "find out who the mayor of {x} is.",
        ),
        ("The mayor of {x} is {v}.", "{v} has been mayor of {x} for ten years."),
        _name,
    ),
    Relation(
        ("which river flows through {x}?", "what river is {x} on?", "on which river is {x}?"),
        ("The river {v} flows through {x}.", "{x} lies on the river {v}."),
        _proper,
    ),
    Relation(
        ("how high is the tower of {x}?", "how tall is the tower of {x}?"),
        ("The tower of {x} is {v} metres high.", "The old tower of {x} rises {v} metres."),
        _count,
    ),
    Relation(
        ("what is {x} known for?", "what is {x} famous for?"),
        ("{x} is known for its {v}.", "{x} is famous for {v}."),
        _things,
    ),
    Relation(
        ("who built the bridge of {x}?", "who built the castle of {x}?"),
        (
            "The bridge and the castle of {x} were built by {v}.",
            "{v} built the bridge and the castle of {x}.",
        ),
        _name,
    ),
    Relation(
        ("how many bridges are there in {x}?", "how many bridges does {x} have?"),
        ("There are {v} bridges in {x}.", "{x} has {v} bridges."),
        _count,
    ),
    Relation(
        ("what language do people speak in {x}?", "which language is spoken in {x}?"),
        ("People in {x} speak {v}.", "The language of {x} is {v}."),
        _proper,
    ),
)
PERSON = (
    Relation(
        ("when was {x} born?", "in which year was {x} born?"),
        ("{x} was born in {v}.", "In {v} {x} was born."),
        _year,
    ),
    Relation(
        ("what did {x} invent?", "what was invented by {x}?"),
        ("{x} invented the {v}.", "The {v} was invented by {x}."),
        _word,
    ),
    Relation(
        ("who is {x}?", "who was {x}?"),
        ("{x} was {v}.", "{x} is {v}."),
        _work,
    ),
    Relation(
        ("where does {x} live?", "in which city does {x} live?", "where is {x}?"),
        ("{x} lives in {v}.", "{x} has a house in {v}."),
        city,
    ),
    Relation(
        ("when did {x} die?", "in which year did {x} die?"),
        ("{x} died in {v}.", "In {v} {x} died."),
        _year,
    ),
)
WORK = (
    Relation(
        (
            "who wrote {x}?",
            "who is the author of {x}?",
            "who wrote the book {x}?",
            "do you know who wrote {x}?",
            "find out who wrote {x}.",
        ),
        ("{x} was written by {v}.", "{v} wrote {x} in one year.", "The author of {x} is {v}."),
        _name,
    ),
    Relation(
        ("when was {x} published?", "in which year was {x} published?"),
        ("{x} was published in {v}.", "In {v} {x} was published."),
        _year,
    ),
    Relation(
        ("how many pages does {x} have?", "how many pages are in {x}?"),
        ("{x} has {v} pages.", "There are {v} pages in {x}."),
        _count,
    ),
    Relation(
        ("who painted {x}?", "who is the painter of {x}?", "do you know who painted {x}?"),
        ("{x} was painted by {v}.", "{v} painted {x}."),
        _name,
    ),
)
THING = (
    Relation(
        (
            "who invented the {x}?",
            "who is the inventor of the {x}?",
            "who made the first {x}?",
            "find out who invented the {x}.",
        ),
        ("The {x} was invented by {v}.", "{v} invented the {x}."),
        _name,
    ),
    Relation(
        ("what is a {x}?", "what is a {x} used for?"),
        ("A {x} is {v}.", "The {x} is {v}."),
        _use,
    ),
    Relation(
        ("how long is a {x}?", "how long is the {x}?"),
        ("A {x} is {v} cm long.", "The {x} is {v} cm long."),
        _count,
    ),
    Relation(
        ("how heavy is a {x}?", "how much does a {x} weigh?"),
        ("A {x} weighs {v} grams.", "The weight of a {x} is {v} grams."),
        _count,
    ),
)
NATURE = (
    Relation(
        ("how high does the {x} grow?", "how tall is the {x}?", "how high is the {x}?"),
        ("The {x} grows to a height of {v} metres.", "The {x} is up to {v} metres high."),
        _count,
    ),
    Relation(
        ("at what temperature does {x} melt?", "when does {x} melt?"),
        ("{x} melts at {v} degrees Celsius.", "The melting point of {x} is {v} degrees."),
        _count,
    ),
    Relation(
        ("how long is the river {x}?", "how long is the {x}?"),
        ("The {x} is {v} km long.", "The river {x} has a length of {v} kilometres."),
        _count,
    ),
    Relation(
        ("where does {x} come from?", "where does the {x} come from?"),
        ("{x} comes from {v}.", "The {x} was first grown in {v}."),
        city,
    ),
    Relation(
        ("who discovered {x}?", "who discovered the {x}?"),
        ("{x} was discovered by {v}.", "{v} discovered {x} in 1801."),
        _name,
    ),
    Relation(
        ("when was {x} discovered?", "in which year was {x} discovered?"),
        ("{x} was discovered in {v}.", "In {v} {x} was discovered."),
        _year,
    ),
    Relation(
        ("what is {x} used for?", "what is {x} used to make?"),
        ("{x} is used for {v}.", "{x} is mostly used to make {v}."),
        _things,
    ),
    Relation(
        ("how many strings does the {x} have?", "how many moons does {x} have?"),
        ("{x} has {v} strings and moons.", "There are {v} strings or moons to the {x}."),
        _count,
    ),
    Relation(
        ("what is {x}?", "what is the {x}?", "what are {x}?"),
        ("The {x} is {v}.", "{x} is {v}."),
        _kind,
    ),
)
_NATURE = (
    "oak", "beech", "willow", "copper", "gold", "tin", "iron", "Nile", "Danube", "Amazon", "Mars",
    "Saturn", "Venus", "violin", "flute", "drum", "pepper", "saffron", "ginger", "cinnamon",
    "telescope", "compass", "printing press", "steam engine", "silver", "zinc", "Rhine", "harp",
)  # fmt: skip
COUNTRY = (
    Relation(
        (
            "what is the capital of {x}?",
            "which city is the capital of {x}?",
            "what's the capital of {x}?",
            "find the capital of {x}.",
        ),
        ("The capital of {x} is {v}.", "{v} is the capital of {x}."),
        city,
    ),
    Relation(
        ("how large is {x}?", "what is the area of {x}?"),
        ("{x} has an area of {v} square kilometres.", "The area of {x} is {v} square kilometres."),
        _count,
    ),
    Relation(
        ("who is the president of {x}?", "who is the king of {x}?", "who rules {x}?"),
        ("The president of {x} is {v}.", "{x} is ruled by {v}."),
        _name,
    ),
)
_COUNTRIES = (
    "Sweden",
    "Kenya",
    "Chile",
    "Brazil",
    "Canada",
    "Mexico",
    "Ireland",
    "Iceland",
    "Turkey",
    "Finland",
    "Denmark",
    "Hungary",
    "Vietnam",
    "Thailand",
    "Ghana",
    "Cuba",
    "Bolivia",
    "Belgium",
    "France",
    "Italy",
    "Japan",
    "Germany",
    "Spain",
    "Norway",
    "Egypt",
    "Peru",
    "Portugal",
    "Austria",
    "Greece",
    "Poland",
)
GROUPS: tuple[tuple[tuple[Relation, ...], Callable[[random.Random], str]], ...] = (
    (PLACE, city), (PLACE, city), (PERSON, _name), (PERSON, _name),
    (COUNTRY, lambda rng: _proper(rng) if rng.random() < 0.3 else rng.choice(_COUNTRIES)),
    (WORK, _proper),
    (THING, lambda rng: thing(rng)[0]),
    (NATURE, lambda rng: made_up(rng) if rng.random() < 0.6 else rng.choice(_NATURE)),
)  # fmt: skip
