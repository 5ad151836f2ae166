"""Questions that need a call whose arguments come out of the calls before it."""

from __future__ import annotations

import random

from tasks.exchange import Exchange, exact, fill, vary
from tasks.words import small, thing

from .lookups import population, price_of

_TOTAL = (
    "how much do {n} {x} cost?", "what do {n} {x} cost?", "what is the price of {n} {x}?",
    "how much are {n} {x}?", "I want to buy {n} {x}. How much is that?", "how much for {n} {x}?",
    "what would {n} {x} cost me?", "I need {n} {x}, what do I pay?",
    "tell me the price of {n} {x}.", "how much do I pay for {n} {x}?", "how expensive are {n} {x}?",
    "what does it cost to buy {n} {x}?", "what is the total for {n} {x}?", "price of {n} {x}?",
    "how much would {n} {x} cost?", "what's the price of {n} {x}?", "what do I pay for {n} {x}?",
    "I would like {n} {x}. What does that cost?", "find the price of {n} {x}.",
    "how much money do I need for {n} {x}?", "what is the cost of {n} {x}?",
)  # fmt: skip
_BASKET = (
    "how much do {n} {x} and {m} {y} cost?", "what do {n} {x} and {m} {y} cost together?",
    "I buy {n} {x} and {m} {y}. How much is that?",
    "what is the total price of {n} {x} and {m} {y}?", "how much are {n} {x} and {m} {y}?",
    "what is the price of {n} {x} and {m} {y}?", "what do I pay for {n} {x} and {m} {y}?",
)  # fmt: skip
_MORE = (
    "how many more people live in {x} than in {y}?", "how much bigger is {x} than {y}?",
    "what is the difference in population between {x} and {y}?",
    "how many more inhabitants does {x} have than {y}?",
    "how many more people are there in {x} than in {y}?",
    "what is the difference between the populations of {x} and {y}?",
)  # fmt: skip
_BOTH = (
    "how many people live in {x} and {y} together?", "what is the total population of {x} and {y}?",
    "how many people live in {x} and {y} in total?",
    "how many people do {x} and {y} have together?",
    "add the populations of {x} and {y}.",
)  # fmt: skip
_LEFT = (
    "I have {n} and buy a {x}. How much is left?", "I pay {n} for a {x}. How much change do I get?",
    "how much is left of {n} if I buy a {x}?", "I have {n}. What is left if I buy a {x}?",
    "what is left of {n} after I buy a {x}?",
)  # fmt: skip


def total(rng: random.Random) -> Exchange:
    """Return "How much do 7 lamps cost?": price, then calculator."""
    (single, things), n = thing(rng), small(rng)
    first = price_of(rng, single).call
    then = exact(f"{n}*{first.result}")
    user = vary(rng, fill(rng, _TOTAL, n=n, x=things))
    answer = (f"{n} {things} cost {then.result}.",)
    return Exchange("chain", user, answer, ((first,), (then,)), (then.result,))


def basket(rng: random.Random) -> Exchange:
    """Return a question about two kinds of things: two prices at once, then calculator."""
    (x, xs), (y, ys), n, m = thing(rng), thing(rng), small(rng), small(rng)
    first, second = price_of(rng, x).call, price_of(rng, y).call
    then = exact(f"{n}*{first.result}+{m}*{second.result}")
    user = vary(rng, fill(rng, _BASKET, n=n, x=xs, m=m, y=ys))
    answer = (f"Together that costs {then.result}.",)
    return Exchange("chain", user, answer, ((first, second), (then,)), (then.result,))


def people(rng: random.Random) -> Exchange:
    """Compare or add the populations of two cities: two lookups at once, then calculator."""
    first, second = population(rng), population(rng)
    x, y = first.subject, second.subject
    more = rng.random() < 0.6
    sign = "-" if more else "+"
    then = exact(f"{first.value}{sign}{second.value}")
    if more:
        answer = f"The difference between {x} and {y} is {then.result}."
    else:
        answer = f"Together {x} and {y} have {then.result} people."
    user = vary(rng, fill(rng, _MORE if more else _BOTH, x=x, y=y))
    steps = ((first.call, second.call), (then,))
    return Exchange("chain", user, (answer,), steps, (then.result,))


def change(rng: random.Random) -> Exchange:
    """Return a question about the money that is left after buying one thing."""
    single, n = thing(rng)[0], small(rng)
    first = price_of(rng, single).call
    then = exact(f"{n}-{first.result}")
    text = fill(rng, _LEFT, n=n, x=single).replace(" a ", " an " if single[0] in "aeiou" else " a ")
    answer = (f"{then.result} is left.",)
    return Exchange("chain", vary(rng, text), answer, ((first,), (then,)), (then.result,))


def chain(rng: random.Random) -> Exchange:
    """Return one of the chained questions."""
    return rng.choice((total, total, total, basket, people, people, change))(rng)
