"""Requests for which a person has to be asked: for a missing value, a choice or a permission."""

from __future__ import annotations

import random
from collections.abc import Callable

from tasks.exchange import Call, Exchange, exact, vary
from tasks.plain.lookups import clock, population, price_of, weather
from tasks.words import ZONES, city, integer, made_up, person, thing

from .media import image, speech
from .shapes import COLOURS, shape

# What is asked for: its kind in the question, in "what ... they like", and how to draw it.
_LIKES: tuple[tuple[str, Callable[[random.Random], str]], ...] = (
    ("colour", lambda rng: rng.choice(COLOURS)),
    ("city", city),
    ("fruit", lambda rng: rng.choice(("apples", "pears", "plums", "a melon", "cherries"))),
    ("food", lambda rng: rng.choice(("soup", "bread", "rice", "noodles", "cake", "salad"))),
    ("animal", lambda rng: rng.choice(("cats", "a dog", "horses", "foxes", "owls"))),
    ("music", lambda rng: rng.choice(("jazz", "rock", "piano music", "old songs", "none"))),
    ("number", lambda rng: str(integer(rng))),
    ("day", lambda rng: rng.choice(("Monday", "Friday", "Sunday", "any day"))),
)
_WHO = (
    ("the user", "they like"),
    ("me", "I like"),
    ("them", "they like"),
    ("the user", "they want"),
)
_TWO = (
    ("tea", "coffee"), ("red", "blue"), ("yes", "no"), ("rice", "bread"), ("train", "bus"),
    ("today", "tomorrow"), ("small", "large"), ("hot", "cold"), ("cats", "dogs"),
)  # fmt: skip
_FIRST = (
    "Ask me for permission, then {d}.", "Ask whether I agree, then {d}.",
    "Ask me before you {d}.", "Check with me first, then {d}.", "Ask the user first, then {d}.",
    "Ask me first. Then {d}.", "{D}, but ask me first.",
)  # fmt: skip


def _ask(question: str, answer: str, options: tuple[str, ...] = ()) -> Call:
    arguments: dict[str, object] = {"question": question}
    if options:
        arguments["options"] = list(options)
    return Call("ask_user", arguments, answer)


def _said(user: str, rng: random.Random, call: Call) -> Exchange:
    answer = (f"You answered: {call.result}.",)
    return Exchange("ask", vary(rng, user), answer, ((call,),), (call.result,))


def _liked(rng: random.Random) -> Exchange:
    """Return "Ask the user what colour they like."."""
    (kind, draw), (who, likes) = rng.choice(_LIKES), rng.choice(_WHO)
    if rng.random() < 0.3:
        kind = made_up(rng)
    verb = likes.split()[-1]
    which = rng.choice(("what", "which"))
    lead = rng.choice(("Ask", "Please ask", "Ask", "Find out from", "Can you ask"))
    end = "?" if lead.startswith("Can") else "."
    if lead.startswith("Find"):
        who = "the user" if who == "them" else who
    user = f"{lead} {who} {which} {kind} {likes}{end}"
    return _said(user, rng, _ask(f"{which.capitalize()} {kind} do you {verb}?", draw(rng)))


def _quoted(rng: random.Random) -> Exchange:
    """Return a request whose question is given word for word."""
    question = rng.choice(
        ("What is your name?", "How old are you?", "Where do you live?", "Are you ready?",
         f"Do you know {person(rng)}?", f"How many {thing(rng)[1]} do you have?",
         f"What is a {made_up(rng)}?", f"Who is {person(rng)}?", f"Shall I go to {city(rng)}?",
         f"Which {made_up(rng)} do you mean?", f"When do you go to {city(rng)}?")
    )  # fmt: skip
    answer = rng.choice((person(rng), str(integer(rng)), made_up(rng), city(rng), "yes", "no"))
    mark = rng.choice("'\"")
    user = rng.choice(
        (f"Ask the user: {question}", f"Ask me: {question}",
         f"Ask the user {mark}{question}{mark}.", f"Ask me {mark}{question}{mark}.")
    )  # fmt: skip
    call = _ask(question, answer)
    answers = (f"You answered: {call.result}.",)
    return Exchange("ask", user, answers, ((call,),), (call.result,))


def _choice(rng: random.Random) -> Exchange:
    """Return a choice between two things, which become the options."""
    x, y = rng.choice(_TWO) if rng.random() < 0.5 else (made_up(rng), made_up(rng))
    who, want = rng.choice((("me", "I want"), ("the user", "they want"), ("me", "I like"),
        ("the user", "they like")))  # fmt: skip
    question = f"Do you {want.split()[-1]} {x} or {y}?"
    user = f"Ask {who} whether {want} {x} or {y}."
    return _said(user, rng, _ask(question, rng.choice((x, y)), (x, y)))


def _value(rng: random.Random) -> Exchange:
    """Return a question that lacks its city or item: it is asked for, then looked up."""
    kind = rng.choice((weather, weather, price_of, population, clock))
    x = rng.choice(list(ZONES)) if kind is clock else ""
    while ":" not in (found := kind(rng, x)).value and kind is clock:
        pass
    noun = "item" if kind is price_of else "city"
    its = {weather: "weather", price_of: "price", population: "population", clock: "time"}[kind]
    some = "an item" if noun == "item" else "a city"
    user = rng.choice(
        (f"Ask me which {noun} I mean, then tell me its {its}.",
         f"Ask me which {noun} I mean and tell me its {its}.",
         f"Ask the user which {noun} they mean, then look up its {its}.",
         f"Ask me for the {noun}, then give me its {its}.",
         f"Tell me the {its} of {some}. Ask me which {noun} I mean.",
         f"I want to know the {its} of some {noun}. Ask me which.",
         f"Ask for a {noun} and tell me its {its}." if noun == "city" else
         f"Ask for an {noun} and tell me its {its}.",
         f"Ask me for the {noun} and tell me its {its}.")
    )  # fmt: skip
    ask = _ask(f"Which {noun} do you mean?", found.subject)
    steps = ((ask,), (found.call,))
    return Exchange("ask", vary(rng, user), (found.answer,), steps, (found.value,))


def _number(rng: random.Random) -> Exchange:
    """Return a calculation with a number that is asked for."""
    n, given = integer(rng, rng.choice((1, 2, 3)), low=2), str(integer(rng))
    text, sign = rng.choice((("multiply it by", "*"), ("divide it by", "/"), ("add", "+"),
        ("subtract", "-")))  # fmt: skip
    then = exact(f"{given}{sign}{n}")
    user = rng.choice(("Ask me for a number and {t} {n}.", "Ask me for a number, then {t} {n}.",
        "Ask the user for a number and {t} {n}.")).format(t=text, n=n)  # fmt: skip
    steps = ((_ask("Which number?", given),), (then,))
    answer = (f"The answer is {then.result}.",)
    return Exchange("ask", vary(rng, user), answer, steps, (then.result,))


def _permission(rng: random.Random) -> Exchange:
    """Return a request that a person has to agree to: on "no" nothing is done."""
    doing, base = rng.choice((_draw, _draw, _look))(rng)
    question = f"Shall I {doing}?"
    user = rng.choice(_FIRST).format(d=doing, D=doing[0].upper() + doing[1:])
    agreed = rng.random() < 0.65
    call = _ask(question, "yes" if agreed else "no", ("yes", "no"))
    if not agreed:
        answer = ("You said no, so I have not done it.",)
        return Exchange("ask", user, answer, ((call,),), ("no",), needs=base.tools)
    return Exchange("ask", user, base.answer, ((call,), *base.steps), base.values)


def _draw(rng: random.Random) -> tuple[str, Exchange]:
    """Return a drawing, picture or sound and what it is called in a question."""
    kind = rng.choice((shape, image, speech))
    verbs = ("Draw a", "Make a picture", "Say '", "Generate an image")
    while True:
        base = kind(rng)
        fits = base.user.startswith(verbs) and base.user[-1] == "." and ". " not in base.user
        if fits and len(base.steps) == 1 and "please" not in base.user:
            return base.user[0].lower() + base.user[1:-1], base


def _look(rng: random.Random) -> tuple[str, Exchange]:
    """Return a lookup and what it is called in a question."""
    kind = rng.choice((weather, population, price_of))
    found = kind(rng)
    its = {weather: "weather in", population: "population of", price_of: "price of"}[kind]
    base = Exchange("one", "", (found.answer,), ((found.call,),), (found.value,))
    return f"look up the {its} {found.subject}", base


def ask(rng: random.Random) -> Exchange:
    """Return a request for which the person has to be asked."""
    return rng.choice((_liked, _quoted, _choice, _value, _value, _number, _permission))(rng)
