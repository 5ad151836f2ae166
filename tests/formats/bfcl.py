"""All calls of the Berkeley Function-Calling Leaderboard, written in every format and read back.

    python -m tests.formats.bfcl /path/to/bfcl_v4 [FORMAT ...]

The path is the leaderboard's archive, a folder that holds it, or one that holds its files. What is
a possible answer there becomes calls: of several acceptable values the first is taken. For each
format the calls are rendered, cut into tokens, watched and parsed, and names and arguments are
compared.
"""

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caesura.intercept.calls.watch import Verdict
from tests.formats.bfcl_data import Turn, files_in, turns_of
from tests.formats.rendering import ONE_AT_A_TIME, RENDER, Call, Unwritable
from tests.formats.world import StandIn, decode, stand_in

STEP = 32
"""Tokens at a time; in these tokenizers a token is a byte or a marker."""


@dataclass
class Tally:
    """What became of the calls in one format."""

    calls: int = 0
    exact: int = 0
    refused: int = 0
    """Calls that the format cannot write."""
    why: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, their types included."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def difference(expected: Call, name: str, arguments: dict[str, Any]) -> str | None:
    """Say what is wrong with a call as it was read; None if it is exact."""
    if name != expected.name:
        return "another name"
    if same(arguments, expected.arguments):
        return None
    if arguments.keys() != expected.arguments.keys():
        return "other arguments"
    for key, value in expected.arguments.items():
        if not same(arguments[key], value):
            kinds = type(value).__name__, type(arguments[key]).__name__
            return f"{kinds[0]} read as {kinds[1]}" if kinds[0] != kinds[1] else "another value"
    return None


def attempt(model: StandIn, calls: Sequence[Call], turn: Turn) -> list[str | None]:
    """Write calls and read them back; say of each what is wrong with it, or None."""
    text = RENDER[model.name](calls)
    outcome = decode(model, model.by_bytes(text), turn.tools, step=STEP)
    if outcome.verdict is not Verdict.CALL:
        return ["no pause"] * len(calls)
    read = [(name, json.loads(arguments)) for name, arguments in outcome.calls]
    if len(read) != len(calls):
        return [f"{len(read)} calls of {len(calls)}"] * len(calls)
    return [difference(call, *got) for call, got in zip(calls, read, strict=True)]


def tally_of(name: str, turns: Sequence[Turn]) -> Tally:
    """Run all turns in one format; whoever stops at each call is given each in its own turn."""
    tally, model = Tally(), stand_in(name)
    known: dict[str, list[str | None]] = {}
    for turn in turns:
        groups = [[call] for call in turn.calls] if name in ONE_AT_A_TIME else [turn.calls]
        for calls in groups:
            # Some files have the same turns with other questions.
            key = repr((calls, turn.tools))
            tally.calls += len(calls)
            try:
                if key not in known:
                    known[key] = attempt(model, calls, turn)
                verdicts = known[key]
            except Unwritable as error:
                tally.refused += len(calls)
                verdicts = [str(error)] * len(calls)
            for wrong in verdicts:
                tally.exact += wrong is None
                if wrong:
                    tally.why[wrong] += 1
                    tally.examples.setdefault(wrong, f"{turn.id} {calls}"[:300])
    return tally


def rows(names: Sequence[str], turns: Sequence[Turn]) -> Iterator[str]:
    yield "| format | calls | exact | refused | why |"
    yield "| --- | --- | --- | --- | --- |"
    for name in names:
        tally = tally_of(name, turns)
        why = ", ".join(f"{count} {reason}" for reason, count in tally.why.most_common())
        yield f"| {name} | {tally.calls} | {tally.exact} | {tally.refused} | {why} |"
        for reason, example in tally.examples.items():
            print(f"  {name}: {reason}: {example}", file=sys.stderr)


def main(path: str, *names: str) -> None:
    """Print the table; what is amiss goes to the error output with an example each."""
    logging.disable(logging.CRITICAL)
    read = list(turns_of(files_in(Path(path))))
    turns = [turn for turn in read if isinstance(turn, Turn)]
    unread = [turn for turn in read if isinstance(turn, str)]
    print(f"{sum(len(turn.calls) for turn in turns)} calls in {len(turns)} turns")
    print(f"{len(unread)} calls are no literals and are left out")
    for line in rows(names or list(RENDER), turns):
        print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
