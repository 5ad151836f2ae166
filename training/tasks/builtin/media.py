"""Requests for generated pictures and for speech, whose texts are copied from the question."""

from __future__ import annotations

import random
from typing import Any

from tasks.exchange import Call, Exchange, fill, vary
from tasks.plain.lookups import KINDS
from tasks.words import city, made_up, person, small, thing

from .files import picture, sound

_WHO = (
    "fox", "cat", "dog", "horse", "robot", "knight", "child", "whale", "bear", "bird", "dragon",
    "farmer", "castle", "house", "boat", "train", "tree", "flower", "mountain", "bridge",
    "lighthouse", "tower", "village", "car", "balloon", "penguin", "rabbit", "wolf", "city",
)  # fmt: skip
_LIKE = (
    "red", "old", "small", "huge", "golden", "sleeping", "wooden", "white", "happy", "lonely",
    "blue", "running", "flying", "dark", "shiny", "young", "snowy", "quiet", "broken",
)  # fmt: skip
_PLACE = (
    "in the snow", "on a beach", "at night", "in the rain", "under the stars", "by the sea",
    "in a forest", "on the moon", "at sunset", "in the fog", "on a hill", "in a garden",
    "with a red hat", "with an umbrella", "beside a river", "in the desert", "as an oil painting",
    "in watercolour", "in black and white", "with two moons", "in the style of a poster",
)  # fmt: skip
_PAINT = (
    "make a picture of {w}.", "make a picture of {w}.", "make an image of {w}.",
    "generate an image of {w}.", "generate a picture of {w}.", "paint {w}.",
    "paint a picture of {w}.", "create an image of {w}.", "create a picture of {w}.",
    "I want a picture of {w}.", "can you make a picture of {w}?", "show me a picture of {w}.",
    "I need an image of {w}.", "draw a picture of {w}.", "give me an image of {w}.",
    "make a photo of {w}.", "imagine {w}.", "make me a picture of {w}.", "draw {w}.",
    "draw me {w}.",
    "I would like a picture of {w}.", "can you draw {w}?", "can you paint {w}?", "picture of {w}",
    "generate {w}.", "show me {w}.", "give me a picture of {w}.", "an image of {w}, please.",
    "could you make an image of {w}?", "a picture of {w}, please.", "produce an image of {w}.",
)  # fmt: skip
_SIZED = (
    "make a {s} picture of {w}.", "make a {s} image of {w}.", "generate a {s} picture of {w}.",
    "make a picture of {w} of {s} pixels.", "create a {s} image of {w}.",
)  # fmt: skip
_SPEAK = (
    "say {q}{t}{q} aloud.", "say {q}{t}{q} aloud.", "say {q}{t}{q}.", "speak {q}{t}{q}.",
    "read {q}{t}{q} aloud.", "read {q}{t}{q} to me.", "say the words {q}{t}{q}.",
    "make a sound file of {q}{t}{q}.", "turn {q}{t}{q} into speech.", "read out {q}{t}{q}.",
    "can you say {q}{t}{q}?", "speak the text {q}{t}{q}.", "say {q}{t}{q} out loud.",
    "I want to hear {q}{t}{q}.", "convert {q}{t}{q} to speech.", "pronounce {q}{t}{q}.",
    "please say {q}{t}{q}.", "speak out {q}{t}{q}.", "read {q}{t}{q}.", "voice {q}{t}{q}.",
    "let me hear {q}{t}{q}.", "make a recording of {q}{t}{q}.", "say {q}{t}{q} to me.",
    "can you read {q}{t}{q} aloud?", "make an audio file of {q}{t}{q}.",
)  # fmt: skip
_UNQUOTED = ("say aloud: {t}", "read aloud: {t}", "say: {t}", "speak: {t}", "read this: {t}",
    "read this aloud: {t}", "say this: {t}", "say out loud: {t}", "speak this: {t}")  # fmt: skip
_VOICES = ("en-gb", "en-us", "de", "fr", "es", "en", "alloy", "amy", "nova", "en-gb-scotland")
_PHRASES = (
    "good morning", "good night", "hello world", "hello", "welcome", "thank you very much",
    "dinner is ready", "the train is late", "see you tomorrow", "happy birthday", "goodbye",
    "the door is open", "stop", "please come in", "nobody is home", "it is time to go",
    "how are you", "we are here", "the tea is hot", "all is well", "mind the gap", "one two three",
)  # fmt: skip


def scene(rng: random.Random) -> str:
    """Return what a picture shows: "a red fox in the snow"."""
    who = rng.choice(_WHO) if rng.random() < 0.75 else rng.choice((made_up(rng), thing(rng)[0]))
    like = rng.choice(_LIKE) + " " if rng.random() < 0.4 else ""
    roll = rng.random()
    if roll < 0.10:
        name = f"{rng.choice(('two', 'three', 'five', 'many'))} {like}{thing(rng)[1]}"
    elif roll < 0.16:
        name = person(rng)
    elif roll < 0.22:
        name = f"the {like}{who} of {city(rng)}"
    else:
        name = ("an " if (like + who)[0] in "aeiou" else "a ") + like + who
    places = rng.sample(_PLACE, rng.choice((0, 1, 1, 1, 1, 2)))
    return " ".join((name, *places))


def _made(rng: random.Random, task: str, user: str, arguments: dict[str, Any]) -> Exchange:
    size = arguments.get("width", 512), arguments.get("height", 512)
    where, result = picture(rng, *size)
    call = Call("generate_image", arguments, result)
    return Exchange(task, user, (f"The picture is at {where}.",), ((call,),), (where,))


def image(rng: random.Random) -> Exchange:
    """Return a request for a generated picture, now and then with a size or a seed."""
    what = scene(rng)
    arguments: dict[str, Any] = {"prompt": what}
    roll = rng.random()
    if roll < 0.12:
        width, height = (rng.choice((128, 256, 384, 512, 640, 768, 1024)) for _ in range(2))
        arguments |= {"width": width, "height": height}
        sign = rng.choice((" x ", "x", " by "))
        user = fill(rng, _SIZED, w=what, s=f"{width}{sign}{height}")
    elif roll < 0.2:
        arguments["seed"] = small(rng)
        user = fill(rng, _PAINT, w=what).rstrip(".?") + f" with seed {arguments['seed']}."
    else:
        user = fill(rng, _PAINT, w=what)
    return _made(rng, "image", vary(rng, user), arguments)


def _phrase(rng: random.Random) -> str:
    """Return something to say, without the marks that could end it."""
    roll = rng.random()
    if roll < 0.35:
        text = rng.choice(_PHRASES)
    elif roll < 0.5:
        text = f"{rng.choice(('hello', 'welcome', 'good morning', 'thank you'))} {person(rng)}"
    elif roll < 0.75:
        text = " ".join(made_up(rng) for _ in range(rng.choice((1, 2, 3, 4))))
    else:
        where, count = city(rng), small(rng)
        text = rng.choice((f"the train to {where} leaves at {count}", f"I live in {where}",
            f"you have {count} {thing(rng)[1]}", f"welcome to {where}", scene(rng)))  # fmt: skip
    if rng.random() < 0.3:
        text = text[0].upper() + text[1:]
    return text + rng.choice(("", "", "", "", "!", ".", "?"))


def _spoken(rng: random.Random, task: str, user: str, arguments: dict[str, Any]) -> Exchange:
    where, result = sound(rng)
    call = Call("speak", arguments, result)
    return Exchange(task, user, (f"The sound is at {where}.",), ((call,),), (where,))


def speech(rng: random.Random) -> Exchange:
    """Return a request to say something: a given text, or what another tool answers."""
    if rng.random() < 0.15:
        return _told(rng)
    text = _phrase(rng)
    arguments = {"text": text}
    if rng.random() < 0.12:
        return _spoken(rng, "speech", fill(rng, _UNQUOTED, t=text), arguments)
    user = fill(rng, _SPEAK, t=text, q=rng.choice("''\""))
    if rng.random() < 0.12:
        arguments["voice"] = rng.choice(_VOICES) if rng.random() < 0.7 else made_up(rng)
        user = user[:-1] + f" with the voice {arguments['voice']}" + user[-1]
    return _spoken(rng, "speech", vary(rng, user), arguments)


def _told(rng: random.Random) -> Exchange:
    """Return a question whose answer is to be spoken: the lookup, then its answer as speech."""
    found = rng.choice(KINDS)(rng)
    lead = found.text[0].upper() + found.text[1:]
    user = lead + rng.choice((" Say it aloud.", " Read the answer aloud.", " Speak the answer.",
        " Say the answer aloud.", " Tell me aloud."))  # fmt: skip
    said = _spoken(rng, "speech", user, {"text": found.answer})
    return Exchange("speech", user, said.answer, ((found.call,), *said.steps), said.values)


def follow_up(rng: random.Random, before: Exchange) -> Exchange | None:
    """Return another picture or another text: "And of a dog?", "And 'good night'."."""
    last = before.calls[-1] if before.calls else None
    if last is None or before.task not in ("image", "speech"):
        return None
    if last.name == "generate_image":
        what = scene(rng)
        text = rng.choice(("And {w}?", "Now {w}.", "And one of {w}.", "And of {w}?"))
        return _made(rng, "follow-up", text.format(w=what), {"prompt": what})
    what, mark = _phrase(rng), rng.choice("''\"")
    text = rng.choice(("And {q}{t}{q}.", "Now {q}{t}{q}.", "And now {q}{t}{q}, please."))
    return _spoken(rng, "follow-up", text.format(t=what, q=mark), {"text": what})
