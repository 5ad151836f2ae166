"""Journals that were damaged: the run goes on or is given up, and the run beside it goes on."""

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from caesura.runtime.journal.store import Entry
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.testing import call as scripted_call
from caesura.runtime.testing import calls, say
from caesura.tools.registry import Registry
from caesura.tools.tool import tool
from tests.kit.server import MODEL
from tests.kit.waiting import until
from tests.runtime.journal.dying import LoggingEngine, Spy

from .bodies import Body, Served, Tracebacks
from .values import mutated

MCP = {"type": "mcp", "server_label": "caesura", "allowed_tools": ["pay"]}
PRICES = {"damaged": (5, 7), "whole": (6, 8)}
"""What each run pays, so that a payment tells its run."""

Row = tuple[str, int, Any]
"""A run, an entry's number, and its body."""


def _item(messages: Sequence[Any], tools: Sequence[Any]) -> Any:
    prices = PRICES.get(messages[0]["content"], PRICES["damaged"])
    done = sum(message["role"] == "assistant" for message in messages)
    if done == len(prices):
        return say("You paid both.")
    return calls(scripted_call("pay", euros=prices[done]), text="One payment.")


@dataclass
class Till:
    """A tool that must not run twice, and what it was paid."""

    paid: list[int] = field(default_factory=list)

    def registry(self) -> Registry:
        """Return the tool alone."""

        @tool(when_unknown="fail")
        async def pay(euros: int) -> str:
            """Pay."""
            self.paid.append(euros)
            return f"paid {euros}"

        return Registry([pay])


class Journals:
    """Journals of two runs, of which one is damaged before another server finds them."""

    def __init__(self, rng: Random) -> None:
        """Let a server live through both runs."""
        self.rng = rng
        self.runs = {name: asyncio.run(_lived(name)) for name in PRICES}

    def damaged(self) -> Iterator[str]:
        """Start a server over a damaged journal beside a whole one; yields what is wrong."""
        rng = self.rng
        first, other = self.runs["damaged"], self.runs["whole"]
        before, beside = first[: rng.randint(1, len(first))], other[: rng.randint(1, len(other))]
        rows, is_lost = _broken(before, rng)
        wrong, paid = asyncio.run(_served(rows, beside))
        due = {*PRICES["whole"]} - set(_dispatched(beside, "whole"))
        # An entry that is lost or cannot be read is noticed. One that says something else may not.
        kept = _dispatched(beside, "whole") + (_dispatched(before, "damaged") if is_lost else [])
        if twice := [one for one in kept if one in paid]:
            wrong.append(f"paid {paid}, and {twice} were paid before")
        if any(paid.count(one) > 1 for one in PRICES["whole"]):
            wrong.append(f"paid {paid}")
        if not due <= set(paid):
            wrong.append(f"the run beside it paid {paid} of {sorted(due)}")
        if wrong:
            yield f"{wrong}\nwith the rows {rows!r:.3000}"


async def _lived(name: str) -> list[Entry]:
    journal, till = Spy(), Till()
    app = create_app(
        LoggingEngine(_item, model=MODEL), till.registry(), parts=ServerParts(journal=journal)
    )
    await app.start()
    served = Served(app, None, Tracebacks())  # type: ignore[arg-type]
    asked = {"model": MODEL, "input": name, "tools": [MCP], "background": True}
    status, answer = await served.ask(Body("/v1/responses", json.dumps(asked).encode()))
    assert status == 200, answer
    await until(lambda: journal.all and journal.count == 0)
    await app.leave()
    await app.close()
    assert tuple(till.paid) == PRICES[name]
    return journal.all


async def _served(rows: list[Row], beside: list[Entry]) -> tuple[list[str], list[int]]:
    """Return what went wrong in a server over these rows, and what it paid."""
    till, journal, log = Till(), Spy(beside), Tracebacks()
    for run, number, body in rows:
        journal.put(run, number, body)
    logging.getLogger().addHandler(log)
    wrong: list[str] = []
    app = create_app(
        LoggingEngine(_item, model=MODEL), till.registry(), parts=ServerParts(journal=journal)
    )
    try:
        await app.start()
        try:
            await until(lambda: journal.count == 0)
        except TimeoutError:
            wrong.append("a run stands still")
        await app.leave()
        await app.close()
    finally:
        logging.getLogger().removeHandler(log)
    return wrong + log.seen, till.paid


def _dispatched(entries: Sequence[Entry], name: str) -> list[int]:
    """Return what was paid, or may have been, by the journal as it was written."""
    count = sum(json.loads(entry.body)[0] == "call" for entry in entries)
    return list(PRICES[name][:count])


KINDS = (
    "begin",
    "turn",
    "tokens",
    "told_tokens",
    "outcome",
    "call",
    "result",
    "told",
    "step",
    "resumed",
    "left",
)


def _broken(entries: Sequence[Entry], rng: Random) -> tuple[list[Row], bool]:
    """Return the rows of a damaged journal, and whether an entry is lost or cannot be read."""
    rows: list[Row] = [(one.run_id, one.number, one.body) for one in entries]
    place = rng.randrange(len(rows))
    run, number, body = rows[place]
    kind, value = json.loads(body)
    is_lost = (damage := rng.randrange(7)) in (1, 3)
    match damage:
        case 0:
            rows.pop(place)
            is_lost = place < len(rows)  # a journal without its end is an earlier one
        case 1:
            rows[place] = (run, number, body[: rng.randrange(len(body))])
        case 2:
            other = rng.randrange(len(rows))
            rows[place], rows[other] = (run, number, rows[other][2]), (*rows[other][:2], body)
        case 3:
            rows[place] = (run, number, rng.choice([None, 7, 0.5, body.encode(), b"\xff", ""]))
        case 4:
            rows[place] = (run, number, json.dumps([rng.choice(KINDS), value]))
        case 5:
            cut = rng.randrange(len(body))
            rows[place] = (run, number, body[:cut] + chr(rng.randrange(32, 127)) + body[cut + 1 :])
        case _:
            rows[place] = (run, number, json.dumps([kind, mutated(value, rng, 1)]))
    return rows, is_lost
