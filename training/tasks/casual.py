"""Questions as people type them in haste: short forms and typing errors, for training alone."""

from __future__ import annotations

import dataclasses
import json
import random
import re

from .conversation import Conversation
from .exchange import Exchange
from .words import OTHER_CITIES, ZONES

SHARE = 0.2  # of the questions
LOWERED = 0.08  # of the questions that name a well-known city
_CITIES = re.compile(rf"\b({'|'.join((*ZONES, *OTHER_CITIES))})\b")
_SLIPS = {
    "what is": ("whats", "what's", "wat is", "waht is", "what s"),
    "what's": ("whats", "what is"),
    "how is": ("hows", "how's"),
    "please": ("pls", "plz", "pleas"),
    "you": ("u",),
    "thanks": ("thx",),
    "weather": ("wether", "weater", "weahter"),
    "much": ("mutch", "muhc"),
    "many": ("mny", "mani"),
    "how": ("hwo",),
    "time": ("tiem", "tme"),
    "draw": ("darw", "drwa"),
    "chart": ("chrat", "charts"),
    "price": ("prcie", "prise"),
    "population": ("populaton", "poplation"),
    "people": ("ppl", "poeple"),
    "calculate": ("calcualte", "calculat"),
    "sentence": ("sentance", "sentnce"),
    "picture": ("pic", "pictur"),
    "image": ("img", "imge"),
    "about": ("abuot", "abt"),
    "the": ("teh",),
    "game": ("gmae",),
    "are": ("r",),
}


def typed(rng: random.Random, said: Exchange) -> Exchange:
    """Return the exchange with one word of its question put in haste.

    A word that a call has to repeat, or that stands in quotes, stays as it is.
    """
    told = " ".join(json.dumps(call.arguments) for call in said.calls).lower()
    quoted = " ".join(re.findall(r"['\"].*['\"]|:.*", said.user)).lower()
    lower = said.user.lower()
    found = [
        word
        for word in _SLIPS
        if re.search(rf"\b{word}\b", lower) and word not in told and word not in quoted
    ]
    if not found:
        return said
    word = rng.choice(found)
    start = re.search(rf"\b{word}\b", lower)
    assert start is not None
    slip = rng.choice(_SLIPS[word])
    if start.start() == 0 and rng.random() < 0.5:
        slip = slip[0].upper() + slip[1:]
    user = said.user[: start.start()] + slip + said.user[start.end() :]
    return dataclasses.replace(said, user=user)


def lowered(said: Exchange) -> Exchange:
    """Return the exchange with the well-known cities of its question in lower case.

    Only questions that a lookup answers are changed: elsewhere the name is copied as it stands.
    """
    known = {"weather", "population", "clock"}
    if not said.calls or not {call.name for call in said.calls} <= known:
        return said
    user = _CITIES.sub(lambda found: found[0].lower(), said.user[1:])
    return dataclasses.replace(said, user=said.user[0] + user)


def casual(rng: random.Random, talk: Conversation) -> Conversation:
    """Return the conversation with some of its questions put in haste."""
    done = [lowered(said) if rng.random() < LOWERED else said for said in talk.exchanges]
    done = [typed(rng, said) if rng.random() < SHARE else said for said in done]
    return Conversation(talk.system, talk.tools, done)
