"""Tools that fail: the answer reports what the tool said and invents nothing."""

from __future__ import annotations

import dataclasses
import random

from tasks.builtin.charts import chart
from tasks.builtin.media import image, speech
from tasks.builtin.people import ask
from tasks.builtin.searches import search
from tasks.builtin.shapes import shape
from tasks.builtin.worlds import environment
from tasks.exchange import Call, Exchange, fill, vary
from tasks.words import integer, made_up, small, thing

from .chains import chain
from .inline import FACTS, request
from .lookups import one, parallel
from .sums import ASK, direct, problem

_MESSAGES = (
    "timed out after {n} s", "timed out", "timeout", "connection refused", "rate limit exceeded",
    "the service is not available", "not found", "unknown {k} {w}", "no data for {w}",
    "{w} not found", "invalid arguments", "invalid arguments: {k} is required",
    "{k} must be a string", "internal error", "permission denied", "server returned {m}",
    "unexpected {k}: {w}", "{w} {v}", "cancelled", "could not reach {w}", "invalid {k}",
    "out of memory", "{W}Error: {v}", "result too large", "nobody answered within {n} s",
    "no game has been started", "{k} is too long", "{k} is not allowed to be empty",
)  # fmt: skip
_SINGLE = (
    direct, problem, one, one, one, chain, chart, shape, image, speech, search, search, ask,
    environment,
)  # fmt: skip


def message(rng: random.Random, call: Call) -> str:
    """Return an error text that fits the call, or one made of made-up words."""
    key, value = next(iter(call.arguments.items()), ("timezone", made_up(rng)))
    told = isinstance(value, str) and len(value) < 40 and call.name != "calculator"
    word = value if told and rng.random() < 0.7 else made_up(rng)
    return rng.choice(_MESSAGES).format(
        n=rng.choice((1, 2, 5, 10, 30, 0.5, integer(rng))),
        m=rng.choice((404, 429, 500, 503)),
        k=key,
        w=word,
        v=made_up(rng),
        W=made_up(rng).capitalize(),
    )


def report(name: str, text: str) -> str:
    """Return the sentence that reports a failed call."""
    return f"The {name} tool reported an error: {text}."


def failed(rng: random.Random, call: Call) -> tuple[Call, str]:
    """Return the call with an error as its result, and the text of the error."""
    text = message(rng, call)
    return dataclasses.replace(call, result=f"error: {text}"), text


def division(rng: random.Random) -> Exchange:
    """Return a division by zero, as an expression or as a story."""
    call = Call("calculator", {"expression": f"{integer(rng)}/0"}, "error: division by zero")
    left = call.arguments["expression"][:-2]
    if rng.random() < 0.7:
        spelled = rng.choice((f"{left}/0", f"{left} / 0", f"{left} divided by 0", f"{left} ÷ 0"))
        user = fill(rng, ASK, e=spelled)
    else:
        call = Call("calculator", {"expression": f"{(n := small(rng))}/0"}, call.result)
        user = f"Share {n} {thing(rng)[1]} among 0 people. How many each?"
    answer = (report("calculator", "division by zero"),)
    return Exchange("error", vary(rng, user), answer, ((call,),), ("division by zero",))


def single(rng: random.Random) -> Exchange:
    """Return a question whose first call fails, even if more would have followed."""
    base = rng.choice(_SINGLE)(rng)
    while len(base.steps[0]) > 1:
        base = one(rng)
    call, text = failed(rng, base.steps[0][0])
    needs = base.tools
    return Exchange(
        "error", base.user, (report(call.name, text),), ((call,),), (text,), needs=needs
    )


def partial(rng: random.Random) -> Exchange:
    """Return two questions at once of which one fails; the answer gives the other one."""
    base = parallel(rng)
    while len(base.calls) != 2:
        base = parallel(rng)
    place = rng.randrange(2)
    broken, text = failed(rng, base.calls[place])
    other = base.calls[1 - place]
    good = f"The {other.name} tool answered: {other.result}."
    answers = [report(broken.name, text), good][:: 1 if place == 0 else -1]
    calls = (broken, other) if place == 0 else (other, broken)
    return Exchange("error", base.user, (" ".join(answers),), (calls,), (text, other.result))


def in_sentence(rng: random.Random) -> Exchange:
    """Return a request for a sentence whose in-line call fails: the sentence says so."""
    fact = rng.choice(FACTS)(rng)
    call, text = failed(rng, fact[2])
    lead = fact[1][0].upper() + fact[1][1:] + " "
    answer = (lead, call, f" an unknown number: {text}.")
    return Exchange("error", request(rng, [fact]), answer, (), ("unknown", text))


def error(rng: random.Random) -> Exchange:
    """Return an exchange in which a tool fails."""
    return rng.choice((division, division, single, single, single, partial, in_sentence))(rng)
