"""Questions as people type them in haste: short forms and typing errors, for training alone."""

from __future__ import annotations

import dataclasses
import json
import random
import re

from .conversation import Conversation
from .exchange import Exchange

SHARE = 0.2  # of the questions
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


def casual(rng: random.Random, talk: Conversation) -> Conversation:
    """Return the conversation with some of its questions put in haste."""
    done = [typed(rng, said) if rng.random() < SHARE else said for said in talk.exchanges]
    return Conversation(talk.system, talk.tools, done)
