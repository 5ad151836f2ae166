"""Requests that name a tool and its arguments: "Call get_order with id 4512."."""

from __future__ import annotations

import random
from typing import Any

from tasks.exchange import Call, Exchange, fill, vary
from tasks.toolset import Tool, distractor
from tasks.words import integer, made_up

_FORMS = (
    "call {t} with {a}.", "use {t} with {a}.", "call the {t} tool with {a}.", "run {t} with {a}.",
    "use the {t} tool with {a}.", "call {t}: {a}.", "please call {t} with {a}.",
)  # fmt: skip
_BARE = ("call {t}.", "use {t}.", "call the {t} tool.", "run {t}.", "use the {t} tool.")


def _argument(rng: random.Random, kind: str) -> Any:
    if kind == "integer":
        return integer(rng)
    if kind == "number":
        return rng.choice((integer(rng), integer(rng, 2) + rng.randrange(1, 10) / 10))
    words = [made_up(rng) for _ in range(rng.choice((1, 1, 1, 2)))]
    text = " ".join(words)
    return rng.choice((text, text, text.capitalize(), f"{words[0]}.txt", f"{words[0]}_{words[-1]}"))


def _result(rng: random.Random) -> str:
    words = " ".join(made_up(rng) for _ in range(rng.choice((1, 1, 2, 3))))
    number = str(integer(rng))
    return rng.choice(
        (words, number, f"{words} {number}", "done", "ok", "true", f'{{"{words}": {number}}}')
    )


def named(rng: random.Random) -> tuple[Exchange, Tool]:
    """Return a request to call a certain tool, and the definition of that tool."""
    tool = distractor(rng)
    function = tool["function"]
    properties = function["parameters"]["properties"]
    arguments = {key: _argument(rng, schema["type"]) for key, schema in properties.items()}
    call = Call(function["name"], arguments, _result(rng))
    sign = rng.choice((" ", " ", "=", " = "))
    said = " and ".join(f"{key}{sign}{value}" for key, value in arguments.items())
    user = vary(rng, fill(rng, _FORMS if arguments else _BARE, t=call.name, a=said))
    answer = (f"The {call.name} tool answered: {call.result}.",)
    return Exchange("named", user, answer, ((call,),), (call.result,)), tool
