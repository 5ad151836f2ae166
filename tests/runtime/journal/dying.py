"""Servers that die and are started again over one journal, with scripted engines."""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import aiohttp

from caesura.intercept.calls.events import Event, TextDelta, TurnEnded
from caesura.runtime.journal.record import recorded
from caesura.runtime.journal.store import Entry, SqliteJournal
from caesura.runtime.testing import ScriptedEngine
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.session_log import LoggedTurn, SessionLog, TurnOutcome
from caesura.tools.tool import tool
from tests.kit.server import MODEL


class LoggingEngine(ScriptedEngine):
    """A scripted engine whose sessions write their text's characters as tokens to their logs.

    `decoded` counts the tokens that were not replayed. `pieces` is how replayed text is cut.
    """

    decoded = 0

    def open(self, spec: SessionSpec, log: SessionLog | None = None) -> Any:
        session = super().open(spec)
        return session if log is None else _Logged(self, session, log)


class _Logged:
    def __init__(self, engine: LoggingEngine, session: Any, log: SessionLog) -> None:
        self._engine, self._session, self._log = engine, session, log
        self._left = list(log.turns)
        self._calls: dict[str, str] = {}
        self.request_id = session.request_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        logged = self._left.pop(0) if self._left else None
        known = 0 if logged is None else len(logged.sampled)
        if logged is None:
            self._log.begin(LoggedTurn([1, 2, 3]))
        back = {own: theirs for theirs, own in self._calls.items()}
        own = [
            {**m, "tool_call_id": back[m["tool_call_id"]]} if m.get("tool_call_id") in back else m
            for m in messages
        ]
        async for event in self._session.turn(own, sampling):
            if isinstance(event, TextDelta):
                tokens = [ord(character) for character in event.text]
                replayed, new = tokens[:known], tokens[known:]
                known -= len(replayed)
                if new:
                    self._engine.decoded += len(new)
                    self._log.sampled(new)
            if isinstance(event, TurnEnded) and (logged is None or logged.outcome is None):
                self._log.end(TurnOutcome("stop", paused=event.reason == "call"))
            yield self._named(event)

    def _named(self, event: Any) -> Any:
        call_id = getattr(event, "call_id", None)
        if call_id is None:
            return event
        if call_id not in self._calls:
            self._calls[call_id] = f"{self._log.key}-{len(self._calls)}"
        return replace(event, call_id=self._calls[call_id])


class Spy(SqliteJournal):
    """A journal in memory that keeps all that was ever written to it."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        super().__init__(None)
        self.all: list[Entry] = []
        if entries:
            super().append("a dead server", entries)

    def append(
        self, owner: str, entries: Sequence[Entry], *, durable: bool = False
    ) -> frozenset[str]:
        known = set(self.all)
        self.all += [entry for entry in entries if entry not in known]
        return super().append(owner, entries, durable=durable)

    def put(self, run: str, number: int, body: Any) -> None:
        """Add a row as it is, to a run of a dead server, which is made if it is missing."""
        made = "INSERT OR IGNORE INTO runs (id, owner, began) VALUES (?, 'a dead server', 0)"
        self._do(lambda db: db.execute(made, (run,)))
        row = "INSERT INTO entries SELECT number, ?, 0, ? FROM runs WHERE id = ?"
        self._do(lambda db: db.execute(row, (number, body, run)))

    @property
    def steps(self) -> list[Any]:
        """All that the client of the only run was told."""
        return recorded("run", [entry.body for entry in self.all]).steps if self.all else []

    @property
    def count(self) -> int:
        return int(self._do(lambda db: db.execute("SELECT count(*) FROM runs").fetchone()[0]))


class Server:
    """A served application, and a client to it."""

    def __init__(self, engine: ScriptedEngine, app: Any, port: int, journal: Any) -> None:
        self.engine, self.app, self.journal = engine, app, journal
        self.http = aiohttp.ClientSession(base_url=f"http://127.0.0.1:{port}")

    async def post(self, path: str = "/v1/responses", **fields: Any) -> dict[str, Any]:
        given = ({"model": MODEL} | fields).items()
        sent = {name: value for name, value in given if value is not None}
        async with self.http.post(path, json=sent) as response:
            body: dict[str, Any] = await response.json()
            assert response.status == 200, body
            return body

    async def get(self, path: str) -> dict[str, Any]:
        async with self.http.get(path) as response:
            body: dict[str, Any] = await response.json()
            assert response.status == 200, body
            return body

    async def events(self, response_id: str, after: int | None = None) -> list[dict[str, Any]]:
        """The events of a response, as a client that comes back gets them."""
        query = "?stream=true" + ("" if after is None else f"&starting_after={after}")
        async with self.http.get(f"/v1/responses/{response_id}{query}") as response:
            assert response.status == 200, await response.text()
            return read_events(await response.text())

    async def streamed(self, **fields: Any) -> list[dict[str, Any]]:
        body = {"model": MODEL, "stream": True} | fields
        async with self.http.post("/v1/responses", json=body) as response:
            assert response.status == 200, await response.text()
            return read_events(await response.text())


def read_events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


MCP: Any = {"type": "mcp", "server_label": "caesura", "allowed_tools": ["double", "pay"]}


class Shop:
    """A tool that must not run twice, and one that may."""

    def __init__(self, when_unknown: Any = "ask") -> None:
        self.paid: list[int] = []
        self.doubled = 0

        @tool(when_unknown=when_unknown)
        async def pay(euros: int) -> str:
            """Pay."""
            self.paid.append(euros)
            return f"paid {euros}"

        @tool(safe_to_repeat=True)
        async def double(number: int) -> int:
            """Double."""
            self.doubled += 1
            return 2 * number

        self.tools = [pay, double]
