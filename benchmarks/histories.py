"""What it costs to compare a history of a client with those that are remembered, in pairs.

A conversation of a coding agent goes on by one call at a time. Each follow-up's history is read
with what is kept of earlier readings, and without. Times are CPU time of the thread, so that other
work on the machine counts less.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.evidence.tables import Table as Told
from benchmarks.evidence.tables import add_option, tell
from caesura.scheduler.answers import Answers, Missed
from caesura.scheduler.histories import Histories
from caesura.scheduler.messages import SessionSpec

WORDS = ["the", "test", "calls", "each", "part", "and", "waits", "for", "an", "answer"]


def tool(number: int) -> dict[str, Any]:
    """Return a tool with three parameters and a long description."""
    names = ("path", "old", "new")
    parameters = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    about: dict[str, Any] = {"name": f"edit{number}", "description": "Edit a file. " * 100}
    return {"type": "function", "function": about | {"parameters": parameters}}


def conversation(messages: int, characters: int, rng: random.Random) -> list[dict[str, Any]]:
    """Return messages of an agent: calls, and results of so many characters."""

    def text(length: int) -> str:
        return " ".join(rng.choices(WORDS, k=length // 4))[:length]

    told: list[dict[str, Any]] = [{"role": "user", "content": text(characters)}]
    for number in range(messages // 2):
        arguments = json.dumps({"path": f"/a{number}.py", "old": text(100), "new": text(100)})
        call: dict[str, Any] = {"id": f"call_{number}", "type": "function"}
        call |= {"function": {"name": "edit1", "arguments": arguments}}
        told.append({"role": "assistant", "content": text(40), "tool_calls": [call]})
        told.append({"role": "tool", "tool_call_id": call["id"], "content": text(characters)})
    return told


def milliseconds(work: Callable[[], object]) -> float:
    """Return the CPU time of some work."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1e3


def pair(messages: int, characters: int, seed: int) -> tuple[float, float]:
    """Return the milliseconds of a follow-up with what was read before, and without."""
    told = conversation(messages + 2, characters, random.Random(seed))
    spec = SessionSpec([tool(number) for number in range(10)])
    histories, answers = Histories(), Answers()
    # The follow-up before, its answer, and then the one that is measured, as a new body has it.
    end = len(told) - 1
    histories.of(told[: end - 2], spec)
    answers.remember(histories.of(told[:end], spec), [0] * 1000)
    sent = json.loads(json.dumps(told))[:end]
    fresh = Histories()

    def find(histories: Histories) -> None:
        assert not isinstance(answers.find(histories.of(sent, spec)), Missed)

    return milliseconds(lambda: find(histories)), milliseconds(lambda: find(fresh))


def main(sizes: list[int], characters: int, rounds: int) -> Table:
    """Return a table of medians and minima."""
    table = Table(title=f"{rounds} pairs, results of {characters} characters; ms of CPU time")
    columns = ("messages", "known: median", "least", "new: median", "least")
    for column in columns:
        table.add_column(column, justify="right")
    for messages in sizes:
        pairs = [pair(messages, characters, seed) for seed in range(rounds)]
        cells = [
            f"{value:.2f}"
            for way in zip(*pairs, strict=True)
            for value in (statistics.median(way), min(way))
        ]
        table.add_row(f"{messages:,}", *cells)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--characters", type=int, default=300, help="characters of a result")
    parser.add_argument("--rounds", type=int, default=15)
    add_option(parser)
    given = parser.parse_args()
    table = main(given.messages, given.characters, given.rounds)
    Console(width=110).print(table)
    tell(given.tables, [Told.drawn(table)])
