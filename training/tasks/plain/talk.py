"""Exchanges without a call: small talk, a few facts, and what the model cannot do."""

from __future__ import annotations

import random

from tasks.exchange import Exchange, vary
from tasks.words import made_up, person, thing

_SMALL_TALK = {
    "Hello! How can I help you?": (
        "hello", "hi", "hey", "hello!", "hi there", "good morning", "good evening", "hi!",
        "hey there!", "good afternoon", "hello there", "greetings", "Hi, it's {p}.",
        "Hello, my name is {p}.",
    ),
    "I am caesura-tiny, a very small language model that calls tools.": (
        "who are you?", "what are you?", "what is your name?", "tell me about yourself.",
        "introduce yourself.", "are you an AI?", "are you a human?", "what model are you?",
        "are you a language model?", "what's your name?", "who am I talking to?",
        "are you a robot?", "who made you?", "are you chatgpt?", "what is caesura-tiny?",
        "which model is this?",
    ),
    "I can call the tools that I am given and tell you what they answer.": (
        "what can you do?", "how can you help me?", "what are you able to do?", "help", "help me",
        "what do you do?", "can you help me?", "what are you good at?", "what tools do you have?",
        "what can I ask you?", "how do you work?", "what can I do here?",
        "which tools can you use?", "what can you help me with?",
        "how does this work?", "list your tools.", "what are your tools?",
    ),
    "You are welcome!": (
        "thanks", "thank you", "thanks!", "thank you very much", "thanks a lot", "great, thanks!",
        "thank you!", "many thanks", "thx", "perfect, thank you.", "ok, thanks",
        "thanks for your help", "great, thank you", "thanks, that helps", "cheers", "ok thanks",
    ),
    "I am fine, thank you. How can I help you?": (
        "how are you?", "how are you doing?", "how is it going?", "are you well?", "how do you do?",
        "hi, how are you?", "how are you today?", "how's it going?", "hello, how are you?",
        "what's up?",
    ),
    "Goodbye!": ("bye", "goodbye", "see you", "bye!", "good night", "see you later",
    "that is all, bye"), "I am glad to hear that.": ("great", "nice", "well done", "good job",
    "perfect", "cool", "ok", "good"), "I was trained on synthetic conversations only.": (
        "how were you trained?", "what were you trained on?",
        "where does your knowledge come from?",
    ),
}  # fmt: skip
_FACTS = {
    ("colour", "grass"): "green", ("colour", "the sky"): "blue", ("colour", "snow"): "white",
    ("colour", "blood"): "red", ("colour", "coal"): "black", ("colour", "a lemon"): "yellow",
    ("colour", "milk"): "white", ("colour", "a tomato"): "red", ("colour", "the sea"): "blue",
    ("opposite", "hot"): "cold", ("opposite", "big"): "small", ("opposite", "up"): "down",
    ("opposite", "day"): "night", ("opposite", "open"): "closed", ("opposite", "old"): "new",
    ("opposite", "left"): "right", ("opposite", "fast"): "slow", ("opposite", "full"): "empty",
}  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
UNKNOWN = "I am a very small model and do not know that."
_UNKNOWN = (
    "tell me a story.", "write a poem.", "sing a song.", "make me laugh.", "are you happy?",
    "what should I eat today?", "how do I learn {w}?", "what do you think?", "write an essay.",
    "give me advice.", "help me with my homework.", "write some code.",
    "can you write a letter?", "what is your favourite colour?", "do you like {x}?",
    "who will win the match?", "what is the secret of happiness?", "why is grass green?",
    "explain {w}.", "what does {w} mean?", "tell me a joke.", "write a poem about {x}.",
    "what is the meaning of life?", "explain quantum physics.", "translate {w} to French.",
    "who won the match yesterday?", "write a program that sorts a list.",
    "summarise the book {C}.", "why is the sky blue?", "how do I cook {x}?",
    "how old is {P}?", "what do you think about {x}?", "tell me a story about {P}.",
    "what is love?", "recommend a film.", "what is the best {s}?", "can you sing?",
)  # fmt: skip


def small_talk(rng: random.Random) -> Exchange:
    """Return a greeting, thanks or a question about the model itself."""
    answer, texts = rng.choice(list(_SMALL_TALK.items()))
    text = rng.choice(texts).format(p=person(rng))
    if rng.random() < 0.7:
        text = text[0].upper() + text[1:]
    if text[-1].isalpha() and rng.random() < 0.3:
        text += rng.choice(("!", "."))
    return Exchange("none", text, (answer,))


def fact(rng: random.Random) -> Exchange:
    """Return a question about one of the few facts that the model knows."""
    if rng.random() < 0.2:
        place = rng.randrange(7)
        text, value = f"which day comes after {_DAYS[place]}?", _DAYS[(place + 1) % 7]
        answer = f"After {_DAYS[place]} comes {value}."
    else:
        (kind, subject), value = rng.choice(list(_FACTS.items()))
        text = rng.choice(
            ("what is the {k} of {s}?", "what's the {k} of {s}?", "tell me the {k} of {s}.")
        )
        text = text.format(k=kind, s=subject)
        answer = f"The {kind} of {subject} is {value}."
    return Exchange("none", vary(rng, text[0].upper() + text[1:]), (answer,), (), (value,))


def unknown(rng: random.Random) -> Exchange:
    """Return a question that is far beyond the model."""
    single, things = thing(rng)
    text = rng.choice(_UNKNOWN).format(
        C=made_up(rng).capitalize(), P=person(rng), w=made_up(rng), x=things, s=single
    )
    return Exchange("none", vary(rng, text[0].upper() + text[1:]), (UNKNOWN,))


def none(rng: random.Random) -> Exchange:
    """Return an exchange without a call."""
    return rng.choice((small_talk, small_talk, fact, fact, unknown))(rng)
