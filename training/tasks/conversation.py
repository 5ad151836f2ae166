"""Whole conversations: a system turn with tools, then one or more exchanges."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .builtin import articles, charts, media, people, searches, shapes, worlds
from .exchange import NO_TOOL, Exchange
from .plain import chains, errors, inline, lookups, named, sums, talk
from .toolset import KNOWN, Tool, toolset
from .words import made_up, person

GENERATORS: dict[str, tuple[Callable[[random.Random], Exchange], ...]] = {
    "one": (sums.direct, sums.problem, lookups.one),
    "chain": (chains.chain,),
    "parallel": (lookups.parallel,),
    "none": (talk.none,),
    "inline": (inline.inline,),
    "error": (errors.error,),
    "search": (searches.search,),
    "articles": (articles.article,),
    "chart": (charts.chart,),
    "svg": (shapes.shape,),
    "image": (media.image,),
    "speech": (media.speech,),
    "ask": (people.ask,),
    "environment": (worlds.environment,),
}
NEW = ("search", "articles", "chart", "svg", "image", "speech", "ask", "environment")
# Share of the exchanges in the training data.
WEIGHTS = {
    "one": 13, "chain": 9, "parallel": 9, "none": 7, "inline": 6, "error": 8, "search": 13,
    "articles": 8, "chart": 9, "svg": 7, "image": 6, "speech": 6, "ask": 9, "environment": 12,
}  # fmt: skip
REFUSED = 0.22
"""Share of the conversations from which a tool that is needed is missing."""
# The same in the training data, where what is hardest comes more often.
HARDER = WEIGHTS | {
    "parallel": 20, "none": 9, "search": 26, "articles": 36, "chart": 16, "svg": 10, "image": 8,
    "environment": 20,
}  # fmt: skip
HARDER_REFUSED = 0.28
FOLLOWED = 0.25
"""Share of the later exchanges that go on from the one before, where that can be."""
HARDER_FOLLOWED = 0.45
TASKS = (*WEIGHTS, "follow-up", "missing", "named")
_REFUSED = ("one", "one", "chain", "parallel", "inline", *NEW)
_SYSTEMS = (
    "You are a helpful assistant.", "You are a helpful assistant.", "You are caesura-tiny.",
    "You are a careful assistant that uses tools.", "Answer briefly.", "Be concise.",
    "You are an agent. Use the tools when they help.",
    "You answer questions with the help of tools.", "You are the assistant of {p}.",
    "Never guess: call a tool.", "You are a shop assistant.",
    "You help with numbers. Today is {d}.", "You are a friendly and precise assistant.",
)  # fmt: skip


@dataclass(frozen=True)
class Conversation:
    """A system text, the tools that are listed, and what is said."""

    system: str | None
    tools: list[Tool]
    exchanges: list[Exchange]


def system_text(rng: random.Random) -> str | None:
    """Return a system text, none at all, or words without a meaning that must be ignored."""
    roll = rng.random()
    if roll < 0.4:
        return None
    if roll < 0.92:
        text = rng.choice(_SYSTEMS)
        return text.format(
            p=person(rng), d=f"2026-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
        )
    words = [made_up(rng) for _ in range(rng.choice((3, 6, 12, 25)))]
    return " ".join(words).capitalize() + "."


def exchange(rng: random.Random, task: str) -> Exchange:
    """Return a fresh exchange of one of the tasks that stand on their own."""
    return rng.choice(GENERATORS[task])(rng)


def follow(rng: random.Random, before: Exchange) -> Exchange | None:
    """Return a question that goes on from the exchange before, where there is one."""
    for room in (sums, lookups, searches, charts, shapes, media, worlds):
        if found := room.follow_up(rng, before):
            return found
    return None


def refuse(asked: Exchange) -> Exchange:
    """Return the same question where its tool is not listed."""
    return Exchange("missing", asked.user, (NO_TOOL,), needs=asked.tools)


def conversation(
    rng: random.Random,
    task: str | None = None,
    turns: int | None = None,
    weights: Mapping[str, int] = WEIGHTS,
    refused: float = REFUSED,
    followed: float = FOLLOWED,
) -> Conversation:
    """Return a conversation; its last exchange is of ``task`` where one is given.

    The further exchanges use the tools that the first ones brought, so that one system turn
    serves several questions. weights: the share of each task among the other exchanges.
    refused: the share of conversations from which a tool that is needed is missing.
    followed: the share of the later exchanges that go on from the one before.
    """
    turns = turns or rng.choice((1, 1, 1, 1, 2, 2, 2, 3))
    wanted: set[str] = set()
    done: list[Exchange] = []
    special: list[Tool] = []
    for place in range(turns):
        last = place == turns - 1
        kind = task if last and task else rng.choices(list(weights), list(weights.values()))[0]
        if kind == "named" or (task is None and rng.random() < 0.08):
            called, tool = named.named(rng)
            special.append(tool)
            done.append(called)
        elif kind == "missing":
            done.append(exchange(rng, rng.choice(_REFUSED)))
        elif kind == "follow-up":
            done += _pair(rng)
        else:
            goes_on = done and task is None and rng.random() < followed
            after = follow(rng, done[-1]) if goes_on else None
            done.append(after or exchange(rng, kind))
        wanted |= done[-1].tools if kind != "missing" else set()
    missing = task == "missing" or (task is None and rng.random() < refused)
    return _listed(rng, done, frozenset(wanted), special, missing)


def _pair(rng: random.Random) -> list[Exchange]:
    while True:
        first = exchange(rng, "one" if rng.random() < 0.55 else rng.choice(NEW))
        if second := follow(rng, first):
            return [first, second]


def _listed(
    rng: random.Random,
    done: list[Exchange],
    wanted: frozenset[str],
    special: list[Tool],
    missing: bool,
) -> Conversation:
    """List the tools, now and then without one that is needed, and refuse what then fails."""
    known = frozenset(
        name for name in wanted if not any(name == t["function"]["name"] for t in special)
    )
    absent: frozenset[str] = frozenset()
    if missing:
        needed = done[-1].tools & frozenset(KNOWN)
        if needed:
            absent = frozenset([rng.choice(sorted(needed))])
    tools = [t for t in toolset(rng, known - absent) if t["function"]["name"] not in absent]
    names = {t["function"]["name"] for t in special}
    tools = [t for t in tools if t["function"]["name"] not in names] + special
    rng.shuffle(tools)
    if absent and rng.random() < 0.1:
        tools = []
    listed = {t["function"]["name"] for t in tools}
    exchanges: list[Exchange] = []
    for said in done:
        # A follow-up to a refused question would have nothing to follow: the talk ends before it.
        if said.task == "follow-up" and exchanges and exchanges[-1].task == "missing":
            break
        exchanges.append(said if said.tools <= listed else refuse(said))
    return Conversation(system_text(rng), tools, exchanges)
