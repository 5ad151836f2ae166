"""Questions that the search tool answers: key words as the query, a sentence as the answer."""

from __future__ import annotations

import random
import re

from tasks.exchange import Call, Exchange, vary
from tasks.plain.lookups import an
from tasks.words import city, made_up, person, thing

from .facts import GROUPS, Relation
from .passages import block, filler, long

_DROPPED = frozenset(
    (
        "a", "about", "am", "an", "and", "are", "at", "by", "can", "did", "do", "does", "find",
        "for", "from", "give", "have", "how", "i", "in", "is", "it", "its", "look", "many", "me",
        "much", "of", "on", "please", "search", "tell", "that", "the", "them", "there", "they",
        "to", "up", "us", "was", "were", "what", "when", "where", "which", "who", "you", "know",
        "has", "why", "could", "would", "some", "something", "facts", "want", "what's",
    )
)  # fmt: skip
_TOPIC = (
    "search for {t}.", "search for {t}.", "look up {t}.", "find something about {t}.",
    "find out about {t}.", "search the library for {t}.", "what do you find about {t}?",
    "use search to find {t}.", "tell me about {t}.", "what do you know about {t}?",
    "what is the history of {t}?", "search: {t}", "tell me something about {t}.",
    "can you look up {t}?", "find me something on {t}.", "what can you tell me about {t}?",
    "I want to know about {t}.", "give me some facts about {t}.",
)  # fmt: skip
_TOPICS = (
    "old bridges", "rivers", "the history of {c}", "{w}", "{w}", "{c}", "{p}", "{w} and {v}",
    "the {t} of {c}", "famous {t}", "how a {w} works", "{w} {v}", "{c} in winter", "{t}",
    "the town of {c}", "music from {c}",
)  # fmt: skip


def query_of(question: str) -> str:
    """Return the key words of a question in their order, as the model has to search for them."""
    words = re.findall(r"[\w'.-]*\w", question)
    kept = [word for word in words if word.lower() not in _DROPPED]
    return " ".join(kept)


def _state(rng: random.Random, relation: Relation, x: str) -> tuple[str, str]:
    value = relation.value(rng)
    text = an(" " + rng.choice(relation.sentences).format(x=x, v=value))[1:]
    return text[0].upper() + text[1:], value


def _around(rng: random.Random, x: str, most: int) -> list[str]:
    """Return up to ``most`` sentences that answer nothing."""
    return [
        long(rng, x) if rng.random() < 0.1 else filler(rng) for _ in range(rng.randrange(most + 1))
    ]


def _passages(
    rng: random.Random, group: tuple[Relation, ...], wanted: str, about: str, other: list[str]
) -> str:
    """Return a passage that holds the wanted sentence, among those about others."""
    most = rng.choice((0, 1, 1, 1, 2, 3))
    texts = [(about, [*_around(rng, about, most), wanted, *_around(rng, about, most)])]
    for x in other:
        said = [_state(rng, rng.choice(group), x)[0] for _ in range(rng.choice((1, 1, 2)))]
        texts.append((x, [*said, *_around(rng, x, max(0, most - 1))]))
    if rng.random() < 0.3:
        rng.shuffle(texts)
    return "\n\n".join(
        block(rng, place, title, said) for place, (title, said) in enumerate(texts, 1)
    )


def _question(rng: random.Random, task: str = "search") -> Exchange:
    """Return a question about one thing, of which one sentence of the results speaks."""
    group, subject = rng.choice(GROUPS)
    relation = rng.choice(group)
    x = subject(rng)
    text = an(" " + rng.choice(relation.questions).format(x=x))[1:]
    query = query_of(text)
    if rng.random() < 0.12:
        call = Call("search", {"query": query}, f"no results for '{query}'")
        return _told(rng, task, text, call, f"The search found nothing for '{query}'.", query)
    wanted, value = _state(rng, relation, x)
    others = [y for y in (subject(rng) for _ in range(rng.choice((0, 0, 1, 1, 2)))) if y != x]
    call = Call("search", {"query": query}, _passages(rng, group, wanted, x, others))
    return _told(rng, task, text, call, wanted, value)


def _told(
    rng: random.Random, task: str, text: str, call: Call, answer: str, value: str
) -> Exchange:
    user = vary(rng, text[0].upper() + text[1:])
    return Exchange(task, user, (answer,), ((call,),), (value,))


def _topic(rng: random.Random) -> Exchange:
    """Return a wish to know something about a topic; the answer is what the first result says."""
    topic = rng.choice(_TOPICS).format(
        c=city(rng), w=made_up(rng), v=made_up(rng), p=person(rng), t=thing(rng)[1]
    )
    topic = an(topic)
    quoted = rng.random() < 0.2
    mark = rng.choice("'\"") if quoted else ""
    forms = _TOPIC[:4] if quoted else _TOPIC
    text = rng.choice(forms).format(t=f"{mark}{topic}{mark}")
    query = topic if quoted else query_of(topic)
    if rng.random() < 0.15:
        call = Call("search", {"query": query}, f"no results for '{query}'")
        return _told(rng, "search", text, call, f"The search found nothing for '{query}'.", query)
    group, subject = rng.choice(GROUPS)
    blocks = []
    first = ""
    for place in range(1, rng.choice((2, 3, 3))):
        x = subject(rng) if place > 1 or rng.random() < 0.3 else topic.split()[-1]
        said = [_state(rng, rng.choice(group), x)[0] for _ in range(rng.choice((1, 2)))]
        if rng.random() < 0.25:
            said[0] = long(rng, x)
        said += _around(rng, x, rng.choice((0, 1, 1, 2)))
        first = first or said[0]
        blocks.append(block(rng, place, x, said))
    call = Call("search", {"query": query}, "\n\n".join(blocks))
    return _told(rng, "search", text, call, first, first)


def search(rng: random.Random) -> Exchange:
    """Return a question that needs the search tool."""
    return _topic(rng) if rng.random() < 0.25 else _question(rng)


def follow_up(rng: random.Random, before: Exchange) -> Exchange | None:
    """Return another question for the same tool."""
    if before.task not in ("search", "articles"):
        return None
    return _question(rng, task="follow-up")
