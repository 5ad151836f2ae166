"""The life of one request, as the engine and the server would record it."""

import json
import random
from typing import Any, NamedTuple

from caesura.runtime.recording import conventions as names
from caesura.scheduler.records import (
    ForecastRecord,
    LackedSteps,
    OpeningInputs,
    OpeningRecord,
    PauseRecord,
    PredictionRecord,
    PriceRecord,
    Record,
    SessionRecord,
    SpanRecord,
    WaitRecord,
)

BLOCK_TOKENS = 16
MODEL = "benchmark/page"
TOOLS = {"calculator": 0.1, "search": 0.8, "weather": 1.5, "browse": 5.0}
"""Tools, with their mean seconds."""
CALLS = {0: 1, 1: 2, 2: 1}
"""Numbers of calls, with their weights."""
WAIT_SECONDS, PREFILL_SECONDS, DECODE_SECONDS = 0.3, 0.15, 1.5
MEAN_SECONDS = 5.7
"""About how long a request is here: two segments, and one call."""
KV_BLOCKS = 4096


class Row(NamedTuple):
    """A row of a `lanes` record."""

    at: float
    request: str
    state: str
    blocks: int
    host: int
    tokens: int


Event = Row | Record


class Life:
    """Draws a request that arrives at `at`; `content` are the bytes of each of its answers."""

    def __init__(self, number: int, at: float, rng: random.Random, content: int = 0) -> None:
        self.request = f"chatcmpl-{number:07d}-1f0e"
        self.events: list[tuple[float, Event]] = []
        self._number = number
        self._rng = rng
        self._content = content
        self._arrival = self._now = at
        self._given = rng.randrange(100, 900)
        self._tokens = self._given
        (calls,) = rng.choices(list(CALLS), list(CALLS.values()))
        self._span("0", names.INVOKE_AGENT, "helper", at, None)
        for call in range(calls + 1):
            self._segment(call)
            if call < calls:
                self._pause(call)
        self._end(calls)
        self.events.sort(key=lambda event: event[0])

    def _segment(self, call: int) -> None:
        began = self._now
        self._forecast(call)
        self._row("waiting")
        waited = self._pass(WAIT_SECONDS)
        if waited > 2 * WAIT_SECONDS:
            self._waited(began, waited)
        self._row("prefill")
        first = self._pass(PREFILL_SECONDS) + waited
        self._row("decode")
        decoded = max(1, round(20 * self._pass(DECODE_SECONDS)))
        self._tokens += decoded
        said = {
            names.REQUEST_MODEL: MODEL,
            names.INPUT_TOKENS: self._given,
            names.OUTPUT_TOKENS: decoded,
            names.TIME_TO_FIRST_CHUNK: first,
            names.CACHED_TOKENS: self._tokens - decoded - self._given,
            names.REQUEST_ID: self.request.rpartition("-")[0],
            **self._said(),
        }
        self._span(f"{2 * call + 1}", names.CHAT, MODEL, began, self._now, **said)

    def _pause(self, call: int) -> None:
        tool, began = self._rng.choice(list(TOOLS)), self._now
        blocks = self._row("paused")
        expected = {"predicted_seconds": TOOLS[tool], "prices": self._prices(blocks, TOOLS[tool])}
        known: dict[str, Any] = {
            "request": self.request,
            "at": began,
            "session": self.request,
            "tool": tool,
            "context_tokens": self._tokens,
            "blocks": blocks,
            "handling": "caesura",
            **expected,
        }
        free = self._rng.randrange(KV_BLOCKS)
        inputs = OpeningInputs(0.0, TOOLS[tool], blocks, total_blocks=KV_BLOCKS, free_blocks=free)
        self._note(OpeningRecord(inputs=inputs, **known))
        called = {names.TOOL_NAME: tool, names.TOOL_CALL_ID: f"call-{self._number}-{call}"}
        key = f"{2 * call + 2}"
        self._span(key, names.EXECUTE_TOOL, tool, began, None, **called)
        took = self._pass(TOOLS[tool])
        self._span(key, names.EXECUTE_TOOL, tool, began, self._now, **called)
        self._given = self._rng.randrange(10, 200)
        self._tokens += self._given
        hindsight = self._prices(blocks, took)
        became = {
            "arrival": self._arrival,
            "given_tokens": self._given,
            "outcome": "resumed",
            "pause_seconds": took,
            "queue_seconds": 0.1,
            "cost": blocks * took,
            "queue_cost": 0.0,
            "work_cost": 0.0,
            "wanted_seconds": took,
            "wanted_requests": 0,
            "hindsight": hindsight,
            "regret": max(0.0, blocks * took - min(hindsight.discard or 0, blocks * took)),
        }
        self._note(PauseRecord(**{**known, **became, "handling": "preserve"}))

    def _end(self, calls: int) -> None:
        self._row("ended")
        ends = {"decoded_tokens": self._tokens, "calls": calls, "outcome": "stop"}
        arrived = {"session": self.request, "arrival": self._arrival}
        self._note(SessionRecord(request=self.request, at=self._now, **arrived, **ends))
        about = {names.AGENT_NAME: "helper", names.TURNS: calls + 1, names.CALLS: calls}
        self._span("0", names.INVOKE_AGENT, "helper", self._arrival, self._now, **about)

    def _row(self, state: str) -> int:
        """Enter a state; return the blocks that are held in it."""
        blocks = 0 if state in ("waiting", "ended") else -(-self._tokens // BLOCK_TOKENS)
        self._note(Row(self._now, self.request, state, blocks, 0, self._tokens))
        return blocks

    def _waited(self, since: float, seconds: float) -> None:
        steps = round(seconds * 40)
        lacked = LackedSteps(blocks=steps // 2, slots=steps - steps // 2)
        told = {"needed_blocks": 40, "free_blocks": 12, "after": "fresh"}
        self._note(WaitRecord(self.request, since, self._now, steps, lacked, **told))

    def _forecast(self, call: int) -> None:
        expected = PredictionRecord("hazard", 40.0, [10.0, 35.0, 80.0], 1.0, 0.4, 0.9, 1.8, 0.01)
        known = {"session": self.request, "calls": call, "predictions": (expected,)}
        self._note(ForecastRecord(self.request, self._now, **known))

    def _prices(self, blocks: int, seconds: float) -> PriceRecord:
        return PriceRecord(blocks * seconds, 0.3 * blocks, 0.1 * blocks)

    def _said(self) -> dict[str, str]:
        if not self._content:
            return {}
        text = self._rng.randbytes(self._content // 2).hex()
        part = {"type": "text", "content": text}
        return {names.OUTPUT_MESSAGES: json.dumps([{"role": "assistant", "parts": [part]}])}

    def _span(
        self, key: str, operation: str, what: str, start: float, end: float | None, **said: object
    ) -> None:
        own = f"{self._number:08x}"
        ids = {"trace": own * 4, "span": f"{own}{key:0>8}"}
        parent = None if key == "0" else f"{own}{0:0>8}"
        attributes = {names.OPERATION: operation, **said}
        told = {"start": start, "end": end, "parent": parent, "attributes": attributes}
        self._note(SpanRecord(**ids, name=f"{operation} {what}", **told))

    def _pass(self, mean: float) -> float:
        """Let some time pass; return the seconds."""
        seconds = self._rng.expovariate(1 / mean)
        self._now += seconds
        return seconds

    def _note(self, event: Event) -> None:
        self.events.append((self._now, event))
