"""Measurement of the link to the host, with copies of paused sessions out and in."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from caesura.intercept.kv.costs import CostModel, Direction
from caesura.intercept.kv.step_budget import IDLE_STEP_SECONDS
from caesura.scheduler.calibration import fit_rate
from caesura.scheduler.vllm.client.measuring.steps import Progress, medians, sizes
from caesura.scheduler.vllm.client.measuring.traffic import PausedSession, Traffic

PIECES = 4
"""Number of copies that a session's context is divided into."""

MAX_COPY_TOKENS = 4096

BESIDE = (4, 256)
"""Number of sequences that decode during copies, and the tokens of each one's prompt."""

MIN_SIZES = 3
"""With medians for this many sizes, a fit leaves out the sizes that were copied only once."""

PATIENCE_SECONDS = 5.0


class Copy(NamedTuple):
    """A copy as the worker measured it; a forward pass ran for `beside` of its seconds."""

    direction: Direction
    tokens: int
    seconds: float
    beside: float


@dataclass
class Link:
    """Measures the link of one engine, and holds the copies measured so far."""

    traffic: Traffic
    block_size: int
    host_blocks: int
    context: int
    capacity: int
    copies: list[Copy] = field(default_factory=list)
    _seen: int = 0

    async def measure(self, seconds: float, coarse: bool, progress: Progress) -> None:
        """Measure copies of all sizes for about `seconds`, in at least one complete round."""
        room = min(self.context - 16, self.capacity // 2) // self.block_size
        room = min(room, self.host_blocks // 2)
        most = min(room // PIECES, MAX_COPY_TOKENS // self.block_size)
        began, first = time.monotonic(), True
        await self._once(max(1, most), most * PIECES, beside=False)
        # This first copy only makes the operating system map the host memory's pages.
        self.copies.clear()
        while first or time.monotonic() - began < seconds:
            for size in sizes(1, most, 4.0 if coarse else 2.0):
                for beside in (True, False):
                    spent = time.monotonic() - began
                    if spent > seconds and not first:
                        return
                    progress(min(1.0, spent / seconds), "copies")
                    await self._once(size, size * PIECES, beside)
            first = False
            if most < 1:
                return

    async def _once(self, size: int, blocks: int, beside: bool) -> None:
        """Copy a context of `blocks` blocks out and in, `size` blocks at a time."""
        session: PausedSession | None = None
        try:
            await self._assume(size)
            async with self._company(beside):
                prompt = self.traffic.prompt(blocks * self.block_size + 1)
                session = await self.traffic.pause(prompt)
                await self._copied(size, blocks)
            # Without its blocks on the device, the context has to come from the host.
            await self._forget(on_host=False)
            async with self._company(beside):
                await self._assume(size)
                await session.resume(self.traffic.prompt(3))
            await self._collect()
            await session.end()
            session = None
            # The next copies then reuse host memory whose pages are mapped.
            await self._forget(on_host=True)
        finally:
            if session is not None:
                await session.abort()

    def _company(self, beside: bool) -> Any:
        return self.traffic.beside(*BESIDE) if beside else nullcontext()

    async def _assume(self, size: int) -> None:
        """Set a cost model under which one step may copy `size` blocks."""
        rate = (size + 0.5) * self.block_size / IDLE_STEP_SECONDS
        cost = CostModel(IDLE_STEP_SECONDS, 0.0, 0.0, 0.0, 1, rate, rate)
        await self.traffic.engine.command({"command": "calibrate", "cost": cost.to_wire()})

    async def _copied(self, size: int, blocks: int) -> None:
        """Wait until a paused session is on the host."""
        wanted, until = blocks * self.block_size, time.monotonic() + PATIENCE_SECONDS
        while wanted > 0 and time.monotonic() < until:
            # The scheduler adjusts its cost model to what it measures, so set the model again.
            # The message also makes an idle engine take a step.
            await self._assume(size)
            wanted -= sum(copy.tokens for copy in await self._collect() if copy.direction == "out")

    async def _forget(self, on_host: bool) -> None:
        """Empty the device's prefix cache once no request runs, and the host if `on_host`."""
        reset, until = self.traffic.engine.llm.reset_prefix_cache, time.monotonic()
        until += PATIENCE_SECONDS
        while not await reset(reset_connector=on_host):
            if time.monotonic() > until:
                return
            await asyncio.sleep(0.01)

    async def _collect(self) -> list[Copy]:
        """Return the copies made since the last call, and add them to `copies`."""
        reply = await self.traffic.engine.command("samples")
        new = reply["copies_measured"] - self._seen
        self._seen = reply["copies_measured"]
        copies = [Copy(*copy) for copy in reply["copies"][-new:]] if new else []
        self.copies += copies
        return copies


class Rates(NamedTuple):
    """Tokens per second in one direction, alone and beside a forward pass; 0 without copies.

    `error` is the mean relative error of `beside`; `copies` are the points it was fitted to.
    """

    alone: float
    beside: float
    error: float
    copies: tuple[tuple[str, int, float], ...]


def rates_of(copies: Sequence[Copy], direction: Direction) -> Rates:
    """Return the rates of one direction, fitted to `copies`."""
    apart: tuple[list[Copy], list[Copy]] = ([], [])
    for copy in copies:
        if copy.direction == direction:
            apart[copy.beside > copy.seconds / 2].append(copy)
    alone = _rate(apart[False])
    # Very short copies rarely overlap with a forward pass.
    beside = _rate(apart[True] or apart[False])
    points = tuple((str(direction), tokens, seconds) for tokens, seconds in beside[2])
    return Rates(alone[0], beside[0], beside[1], points)


def _rate(copies: Sequence[Copy]) -> tuple[float, float, list[tuple[int, float]]]:
    """Return the rate, its mean relative error, and the medians it was fitted to."""
    if not copies:
        return 0.0, 0.0, []
    chosen = medians([(copy.tokens, copy.tokens, copy.seconds) for copy in copies], MIN_SIZES)
    points = [(tokens, seconds) for tokens, _, seconds in chosen]
    try:
        rate, error = fit_rate(points)
    except ValueError:
        # There are too few sizes, or all are so small that the size makes no difference.
        rate = median(tokens / seconds for tokens, seconds in points)
        error = sum(abs(tokens / rate / seconds - 1) for tokens, seconds in points) / len(points)
    return rate, error, points
