"""Clients of all manners against one server, and what became of their answers and of the server."""

import asyncio
import json
import random
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.campaign.conduct import tell
from tests.campaign.report import Defect, Outcome

from .server import REST_SECONDS, Server, serving, stopped, until

CLIENTS = 8
ANSWER_SECONDS = 300.0
"""An answer that takes longer is lost; none of these takes ten seconds on an idle machine."""
SECONDS_BETWEEN_KILLS = 90.0
MANNERS = ("whole", "whole", "stream", "stream", "abort", "vanish", "slow")


@dataclass
class Campaign:
    """One server, its clients, and what they saw."""

    server: Server
    rng: random.Random
    again: str
    outcome: Outcome = field(default_factory=lambda: Outcome(runs=1))
    expected: dict[str, str] = field(default_factory=dict)
    usage: list[tuple[float, float, int, int]] = field(default_factory=list)

    def defect(self, kind: str, seen: str) -> None:
        """Note a defect."""
        self.outcome.defects.append(Defect(kind, seen, self.again))
        tell(self.outcome.defects[-1:])

    async def go(self, sessions: int, ends_at: float) -> None:
        """Ask alone first, then all at once under faults until the time is over."""
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(timeout=ANSWER_SECONDS, limits=limits) as http:
            for question in questions():
                self.expected[question] = await self._whole(http, question)
            faults = asyncio.create_task(self._faults())
            await asyncio.gather(*(self._client(http, sessions, ends_at) for _ in range(CLIENTS)))
            faults.cancel()
            await asyncio.wait([faults])

    async def _client(self, http: httpx.AsyncClient, sessions: int, ends_at: float) -> None:
        while self.outcome.sessions < sessions and time.monotonic() < ends_at:
            self.outcome.sessions += 1
            question, manner = self.rng.choice(list(self.expected)), self.rng.choice(MANNERS)
            try:
                await self._ask(http, question, manner)
            except (httpx.HTTPError, TimeoutError, Refused) as error:
                self.outcome.ends[f"{manner}: failed"] += 1
                self.defect("lost", f"{manner} {question!r}: {error!r}")

    async def _ask(self, http: httpx.AsyncClient, question: str, manner: str) -> None:
        if manner == "whole":
            self._judge(manner, question, await self._whole(http, question))
            return
        if manner == "abort":
            # A client that goes away at any time, before or after the first token.
            work = asyncio.create_task(self._whole(http, question))
            await asyncio.wait([work], timeout=self.rng.uniform(0, 3))
            work.cancel()
            await asyncio.wait([work])
            self.outcome.ends["aborted"] += 1
            return
        text = await self._streamed(http, question, manner)
        if text is None:
            self.outcome.ends["vanished in a stream"] += 1
        else:
            self._judge(manner, question, text)

    def _judge(self, manner: str, question: str, text: str) -> None:
        self.outcome.ends[f"{manner}: answered"] += 1
        if text != self.expected[question]:
            wanted = self.expected[question]
            self.defect("differs", f"{manner} {question!r}: {text!r} for {wanted!r}")

    async def _whole(self, http: httpx.AsyncClient, question: str) -> str:
        response = await http.post(f"{self.server.url}/v1/chat/completions", json=body(question))
        if response.status_code != 200:
            raise Refused(f"status {response.status_code}: {response.text[:300]}")
        return str(response.json()["choices"][0]["message"]["content"])

    async def _streamed(self, http: httpx.AsyncClient, question: str, manner: str) -> str | None:
        leaves_after = self.rng.randrange(8) if manner == "vanish" else -1
        text: list[str] = []
        url, asked = f"{self.server.url}/v1/chat/completions", {**body(question), "stream": True}
        async with http.stream("POST", url, json=asked) as response:
            if response.status_code != 200:
                raise Refused(f"status {response.status_code}: {(await response.aread())[:300]!r}")
            async for line in response.aiter_lines():
                if manner == "slow":
                    await asyncio.sleep(0.1)
                if not line.startswith("data: {"):
                    continue
                event: dict[str, Any] = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise Refused(f"an error in the stream: {event['error']}")
                for choice in event["choices"]:
                    text.append(choice["delta"].get("content") or "")
                if leaves_after == 0:
                    return None
                leaves_after -= 1
        return "".join(text)

    async def _faults(self) -> None:
        began = time.monotonic()
        struck = began
        while True:
            await asyncio.sleep(5)
            usage = await asyncio.to_thread(self.server.usage)
            self.usage.append((time.monotonic() - began, *usage))
            if time.monotonic() - struck > SECONDS_BETWEEN_KILLS:
                struck = time.monotonic()
                await asyncio.to_thread(self._strike)

    def _strike(self) -> None:
        for engine in self.server.engines():
            if self.rng.random() < 0.5:
                self.outcome.faults["engine killed"] += 1
                engine.kill()
                continue
            self.outcome.faults["engine stopped for 5 s"] += 1
            engine.send_signal(signal.SIGSTOP)
            time.sleep(5)
            engine.send_signal(signal.SIGCONT)

    def rests(self) -> None:
        """Judge the server once nobody asks for anything."""
        try:
            until(lambda: not self.server.busy(), REST_SECONDS, "the engine does not come to rest")
        except TimeoutError as error:
            self.defect("leaked", f"{error}: {self.server.busy()}")
        later = self.usage[len(self.usage) // 2 :]
        if len(later) > 5:
            hours = np.array([row[0] for row in later]) / 3600
            for column, name in ((1, "RSS, MB/h"), (2, "descriptors/h"), (3, "processes/h")):
                slope = np.polyfit(hours, [row[column] for row in later], 1)[0]
                self.outcome.figures[f"slope of {name}, last half"] = round(float(slope), 1)
        last = self.usage[-1] if self.usage else (0.0, *self.server.usage())
        self.outcome.figures["descriptors of the server at the end"] = last[2]
        left = stopped(self.server)
        if left:
            self.defect("leaked", f"processes are left after SIGTERM: {left}")


class Refused(Exception):
    """The server answered with an error."""


def body(question: str) -> dict[str, Any]:
    """Return a request whose answer is the same each time."""
    return {
        "model": "caesura-tiny",
        "messages": [{"role": "user", "content": question}],
        "server_tools": ["calculator"],
        "temperature": 0,
        "max_tokens": 120,
    }


def questions() -> list[str]:
    """Return what clients ask, of which each needs at least one call."""
    return [f"What is {a} * {b}?" for a, b in ((48, 17), (2, 3), (99, 99), (7, 12), (1234, 56))]


def run(seed: int, sessions: int, budget: float) -> tuple[Outcome, bool]:
    """Conduct the campaign; returns the outcome, and whether Ctrl-C ended it."""
    began, broken_off = time.monotonic(), False
    again = f"python -m tests.campaign real --seed {seed}"
    with tempfile.TemporaryDirectory(prefix="caesura-campaign-") as folder:
        with serving(Path(folder)) as server:
            campaign = Campaign(server, random.Random(seed), again)
            try:
                asyncio.run(campaign.go(sessions, began + budget))
            except KeyboardInterrupt:
                broken_off = True
            campaign.rests()
            log = server.log.read_text(errors="replace")
        tracebacks = Counter(
            line for line in log.splitlines() if line.startswith(("AssertionError", "KeyError"))
        )
        campaign.outcome.figures.update(tracebacks)
    campaign.outcome.seconds = time.monotonic() - began
    return campaign.outcome, broken_off
