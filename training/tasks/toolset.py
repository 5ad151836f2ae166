"""Tool definitions as they stand in the system turn: the known ones and distractors."""

from __future__ import annotations

import random
from typing import Any

from .words import made_up

KNOWN: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "calculator": (
        {"expression": "string"},
        (
            "Evaluate arithmetic.",
            "Evaluate an arithmetic expression.",
            "Calculate the value of an expression.",
            "Do arithmetic.",
            "Compute an arithmetic expression such as 2*(3+4).",
            "",
        ),
    ),
    "clock": (
        {"timezone?": "string"},
        (
            "The current time.",
            "Tell the current date and time.",
            "Current date and time in an IANA time zone.",
            "Get the time in a time zone, UTC by default.",
            "",
        ),
    ),
    "weather": (
        {"city": "string"},
        (
            "The weather in a city.",
            "Get the current weather.",
            "Weather report for a city.",
            "Look up the weather of a city.",
            "",
        ),
    ),
    "price": (
        {"item": "string"},
        (
            "The price of an item.",
            "Look up what an item costs.",
            "Get the price of one item in the shop.",
            "Price list.",
            "",
        ),
    ),
    "population": (
        {"city": "string"},
        (
            "The population of a city.",
            "How many people live in a city.",
            "Get the number of inhabitants.",
            "Look up a city's population.",
            "",
        ),
    ),
    "search": (
        {"query": "string"},
        (
            "Search for a text.",
            "Search the corpus for passages about a query.",
            "Find passages that answer a question.",
            "Search Wikipedia.",
            "Look something up in the library.",
            "",
        ),
    ),
    "environment": (
        {"action": "string"},
        (
            "Play a text game.",
            'Take an action in a text world; "reset" starts a new game.',
            "Act in a simulated household.",
            "Do one action of the game and see what happens.",
            "",
        ),
    ),
    "render_chart": (
        {"spec": "object"},
        (
            "Draw a chart.",
            "Draw a chart from a Vega-Lite specification with inline data.",
            "Render a Vega-Lite chart as a PNG picture.",
            "Make a chart of numbers.",
            "",
        ),
    ),
    "render_svg": (
        {"svg": "string"},
        (
            "Draw an SVG.",
            "Render SVG text as a PNG picture.",
            "Make a picture from SVG.",
            "Draw shapes.",
            "",
        ),
    ),
    "generate_image": (
        {"prompt": "string", "width?": "integer", "height?": "integer", "seed?": "integer"},
        (
            "Generate an image.",
            "Make a picture of what a text describes.",
            "Paint a picture with a diffusion model.",
            "Text to image.",
            "",
        ),
    ),
    "speak": (
        {"text": "string", "voice?": "string"},
        (
            "Say a text aloud.",
            "Turn text into speech.",
            "Speak a text; makes a sound file.",
            "Text to speech.",
            "",
        ),
    ),
    "ask_user": (
        {"question": "string", "options?": "array"},
        (
            "Ask the user a question.",
            "Ask the person and wait for the answer.",
            "Put a question to the user, with options to choose from.",
            "Ask a person.",
            "",
        ),
    ),
}
BUILT_IN = frozenset(KNOWN) - {"weather", "price", "population"}
_VERBS = ("get", "find", "send", "list", "open", "read", "book", "set", "search", "delete", "check")
_NOUNS = (
    "mail", "file", "flight", "order", "user", "note", "song", "page", "event", "room", "news",
    "stock", "invoice", "message", "recipe", "route", "contact", "photo", "task", "table", "word",
)  # fmt: skip
_PARAMETERS = {
    "id": "integer", "name": "string", "query": "string", "count": "integer", "text": "string",
    "to": "string", "limit": "integer", "date": "string", "path": "string", "amount": "number",
    "language": "string", "title": "string", "key": "string", "room": "string", "symbol": "string",
}  # fmt: skip
Tool = dict[str, Any]


def tool(name: str, parameters: dict[str, str], description: str) -> Tool:
    """Return an OpenAI-style definition; a parameter whose name ends in ``?`` is optional."""
    schema = {
        "type": "object",
        "properties": {
            key.rstrip("?"): {} if kind == "any" else {"type": kind}
            for key, kind in parameters.items()
        },
        "required": [key for key in parameters if not key.endswith("?")],
    }
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


def known(rng: random.Random, name: str) -> Tool:
    """Return one of the known tools with one of its descriptions."""
    parameters, descriptions = KNOWN[name]
    if rng.random() < 0.2:
        # What may also be null is listed as of any type.
        parameters = {key: "any" if "?" in key else kind for key, kind in parameters.items()}
    description = rng.choice(descriptions)
    if rng.random() < 0.08:
        description = " ".join(made_up(rng) for _ in range(rng.randrange(2, 6))).capitalize() + "."
    return tool(name, parameters, description)


def distractor(rng: random.Random) -> Tool:
    """Return a tool that no question of the known kinds needs."""
    noun = made_up(rng) if rng.random() < 0.25 else rng.choice(_NOUNS)
    verb = made_up(rng) if rng.random() < 0.1 else rng.choice(_VERBS)
    name = rng.choice((noun, f"{verb}_{noun}", f"{verb}_{noun}", f"{verb}{noun.capitalize()}"))
    keys = rng.sample(list(_PARAMETERS), rng.choice((0, 1, 1, 1, 2, 2)))
    parameters = {key: _PARAMETERS[key] for key in keys}
    if rng.random() < 0.2:
        parameters[made_up(rng)] = rng.choice(("string", "integer"))
    description = rng.choice(
        (f"{verb} a {noun}.", f"{verb} the {noun} you want.", f"The {noun}.", "")
    )
    return tool(name, parameters, description[:1].upper() + description[1:])


def toolset(rng: random.Random, wanted: frozenset[str] = frozenset()) -> list[Tool]:
    """Return the wanted tools among a random choice of others, in random order."""
    if rng.random() < 0.12:
        extra = sorted(BUILT_IN - wanted - ({"generate_image"} if rng.random() < 0.5 else set()))
    else:
        others = [name for name in KNOWN if name not in wanted]
        extra = rng.sample(others, rng.choice((0, 0, 0, 1, 1, 2, 5)))
    tools = [known(rng, name) for name in (*sorted(wanted), *extra)]
    tools += [distractor(rng) for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2)))]
    rng.shuffle(tools)
    return list({entry["function"]["name"]: entry for entry in tools}.values())
