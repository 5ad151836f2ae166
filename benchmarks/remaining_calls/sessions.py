"""Recorded sessions of agents as predictors see them: facts, and what came.

Two forms are read. `*trajs*.jsonl.gz` are sessions of mini-swe-agent with texts and times, one per
line. `sessions.jsonl.gz` are sessions as numbers, without texts or arrivals. Their sessions arrive
`SPACING_SECONDS` apart, in the order of the file.
"""

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.scheduler.predict.facts import NO_WORDS, CallWords, Facts, WordHasher, tells_of_error

SPACING_SECONDS = 60.0
SALT = b"benchmark"
COMMAND = re.compile(r"```(?:bash|sh)?\s*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Turn:
    """A segment: what was known at its begin, and what came.

    It begins at second `begin`. `left` further calls follow, and it decodes `tokens`. Its call
    pauses the session for `pause` seconds; None: unknown, or the last turn.
    """

    begin: float
    facts: Facts
    tokens: int
    left: int
    tool: str
    result_tokens: int
    pause: float | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session, which ends at second `end`; `kind` is that of its first segment."""

    key: str
    kind: str
    end: float
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class _Raw:
    """A turn as recorded."""

    begin: float
    context: int
    tokens: int
    tool: str
    words: CallWords
    failed: bool
    pause: float | None


def read(folder: Path) -> list[Recorded]:
    """Return the sessions of a folder in order of arrival; raises `FileNotFoundError`."""
    for path in sorted(folder.glob("*trajs*.jsonl.gz")):
        return sorted(_with_texts(path), key=lambda session: session.turns[0].begin)
    path = folder / "sessions.jsonl.gz"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds neither *trajs*.jsonl.gz nor sessions.jsonl.gz")
    return list(_as_numbers(path))


def _with_texts(path: Path) -> Iterator[Recorded]:
    hasher = WordHasher(SALT)
    for session in _lines(path):
        messages, turns, begin = session["messages"], [], None
        for message, answer in zip(messages, [*messages[1:], {}], strict=True):
            if message["role"] != "assistant":
                continue
            # A turn begins about when the last one was created: its own time tells its length.
            begin = message["created"] if begin is None else begin
            found = COMMAND.search(message["content"] or "")
            command = found.group(1) if found else ""
            result = str(answer.get("content") or "")
            turns.append(
                _Raw(
                    begin=float(begin),
                    context=message.get("prompt_tokens") or 1,
                    tokens=message.get("completion_tokens") or 1,
                    tool="bash",
                    words=hasher.words(command.encode()),
                    failed=tells_of_error(result.encode()),
                    pause=None,
                )
            )
            begin = message["created"]
        yield _recorded(session["instance_id"], turns)


def _as_numbers(path: Path) -> Iterator[Recorded]:
    for index, session in enumerate(_lines(path)):
        now, turns = index * SPACING_SECONDS, []
        for turn in session["turns"]:
            tools = turn["tools"] or [{}]
            pause = turn["pause_s"] if turn["pause_kind"] == "tool" else None
            tool, failed = tools[0].get("name") or "agent", bool(tools[-1].get("error"))
            context, tokens = turn["ctx"] or 1, turn["out"] or 1
            turns.append(_Raw(now, context, tokens, tool, NO_WORDS, failed, pause))
            now += (turn["llm_s"] or 0.0) + (turn["pause_s"] or 0.0)
        if len(turns) > 1:
            yield _recorded(f"{index}", turns)


def _recorded(key: str, raws: list[_Raw]) -> Recorded:
    first, facts, turns = raws[0], Facts(context_tokens=raws[0].context), []
    for index, raw in enumerate(raws):
        left = len(raws) - 1 - index
        following = raws[index + 1] if left else None
        given = following.context - raw.context - raw.tokens if following is not None else 0
        turns.append(Turn(raw.begin, facts, raw.tokens, left, raw.tool, max(1, given), raw.pause))
        if following is not None:
            facts = facts.after_call(raw.tokens, raw.tool, raw.words).after_result(
                max(1, given), raw.failed, following.context, following.begin - first.begin
            )
    return Recorded(key, "agent", raws[-1].begin + 1.0, tuple(turns))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)
