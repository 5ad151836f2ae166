"""One engine with a limited link: returns that load a context, and returns that recompute it."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.handling.systems import Settings, engine_args
from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.vllm import CaesuraScheduler
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.measurement import PausedSession, Traffic, measure

BLOCKS = 400
MODEL = "25m"
PROMPT_TOKENS = 64
"""Tokens of the prompt of a request that decodes beside."""
RESULT_TOKENS = 3
WARM_SECONDS = 0.4
"""For this long the decoding requests are watched before the return, to know their pace."""
PATIENCE_SECONDS = 60.0
FAST = 1e9
"""A link's rate in tokens per second at which everything is copied at once."""
CLOSED = 1e-4
"""A link's rate at which nothing is copied."""
OPEN_SHARE = 1e-5
"""The share of recomputation's rate from which the engine swaps and loads, whatever that costs."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Return:
    """One return of a session: seconds to its first token, and what each other request lost."""

    seconds: float
    lost_seconds: float


@dataclass(slots=True)
class LinkRun:
    """What an engine with one link showed; `pairs` are (load, recompute), by requests beside.

    `copies` are those of the engine in their order: direction, tokens, seconds, seconds beside a
    forward pass.
    """

    gb_per_second: float
    calibration: Calibration
    pairs: dict[int, list[tuple[Return, Return]]] = field(default_factory=dict)
    copies: list[tuple[str, int, float, float]] = field(default_factory=list)


class Company:
    """Requests that decode all the time, and the moments of their tokens."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    @asynccontextmanager
    async def decoding(self, traffic: Traffic, requests: int) -> AsyncIterator[None]:
        """Decode this many requests within the context; all have begun when it is entered."""
        begun = [asyncio.Event() for _ in range(requests)]
        tasks = [asyncio.create_task(self._decode(traffic, event)) for event in begun]
        try:
            await asyncio.gather(*(event.wait() for event in begun))
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _decode(self, traffic: Traffic, begun: asyncio.Event) -> None:
        room = traffic.engine.context_tokens - PROMPT_TOKENS - 1
        params = SamplingParams(
            temperature=0,
            max_tokens=room,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        prompt = tokens_input(traffic.prompt(PROMPT_TOKENS))
        outputs = traffic.engine.llm.generate(prompt, params, f"company-{id(begun)}")
        async with aclosing(outputs):
            async for _ in outputs:
                self.moments.append(time.perf_counter())
                begun.set()

    def lost_seconds(self, before: float, begin: float, end: float) -> float:
        """Return what a request lost from `begin` to `end`, by its pace since `before`."""
        paced = sum(before <= moment < begin for moment in self.moments)
        came = sum(begin <= moment < end for moment in self.moments)
        if not paced:
            return 0.0
        return (end - begin) - came * (begin - before) / paced


class Bench:
    """Measures returns on one engine."""

    def __init__(self, engine: VllmEngine, calibration: Calibration, rate: float) -> None:
        """Create it; `rate` is the link's true rate in tokens per second."""
        self._engine = engine
        self._traffic = Traffic(engine)
        self._cost = calibration.cost
        self._rate = rate

    async def pairs(self, context: int, beside: int, count: int) -> list[tuple[Return, Return]]:
        """Return pairs of a load and a recomputation, in changing order."""
        await self._assume(FAST)
        hosted = await self._traffic.pause(self._traffic.prompt(context))
        await self._copied(context)
        await self._assume(CLOSED)
        lost = await self._traffic.pause(self._traffic.prompt(context))
        found = []
        for index in range(count):
            order = (True, False) if index % 2 == 0 else (False, True)
            seen = {
                load: await self._back(hosted if load else lost, load, beside) for load in order
            }
            found.append((seen[True], seen[False]))
        await hosted.end()
        await lost.end()
        await self._forget(on_host=True)
        return found

    async def _back(self, session: PausedSession, load: bool, beside: int) -> Return:
        """Take the session's KV from the device, and let it come back."""
        await self._forget(on_host=False)
        # The session that recomputes must not be copied at its next pause either.
        await self._assume(self._rate if load else CLOSED)
        company = Company()
        async with company.decoding(self._traffic, beside):
            before = time.perf_counter()
            await asyncio.sleep(WARM_SECONDS if beside else 0.0)
            begin = time.perf_counter()
            await session.resume(self._traffic.prompt(RESULT_TOKENS))
            end = time.perf_counter()
        return Return(end - begin, company.lost_seconds(before, begin, end))

    async def _assume(self, rate: float) -> None:
        """Set the measured cost of steps, and a link of `rate` tokens per second."""
        cost: CostModel = replace(self._cost, out_rate=rate, in_rate=rate)
        await self._engine.command({"command": "calibrate", "cost": cost.to_wire()})

    async def _copied(self, context: int) -> None:
        """Wait until the only paused session is on the host."""
        wanted, until = context // 32, time.monotonic() + PATIENCE_SECONDS
        while (await self._engine.command("state"))["host_blocks_used"] < wanted or (
            (await self._engine.command("state"))["blocks_copying"]
        ):
            if time.monotonic() > until:
                raise TimeoutError(f"{context} tokens were not copied in {PATIENCE_SECONDS:g} s")
            await self._assume(FAST)
            await asyncio.sleep(0.02)

    async def _forget(self, on_host: bool) -> None:
        """Empty the device's prefix cache once no request runs, and the host if `on_host`."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not await self._engine.llm.reset_prefix_cache(reset_connector=on_host):
            if time.monotonic() > until:
                raise TimeoutError(f"requests still ran after {PATIENCE_SECONDS:g} s")
            await asyncio.sleep(0.01)


async def measure_link(
    gb_per_second: float, context: int, beside: list[int], count: int, say: Say
) -> LinkRun:
    """Start an engine with a link of this rate, and measure pairs beside each number of requests.

    Raises `TimeoutError` if the engine does not come to rest.
    """
    settings = Settings(blocks=BLOCKS, model=MODEL, link_gb_per_second=gb_per_second)
    say("the engine starts")
    with tempfile.TemporaryDirectory() as name:
        args = engine_args({"handling": "swap", "min_link_share": OPEN_SHARE}, settings, Path(name))
        args |= {"scheduler_cls": CaesuraScheduler}
        llm = await asyncio.to_thread(AsyncLLM.from_engine_args, AsyncEngineArgs(**args))
        engine = VllmEngine(llm, EngineOptions(served_name=MODEL))
        try:
            say("the engine is measured")
            calibration = await measure(engine, True, lambda done, what: None)
            run = LinkRun(gb_per_second, calibration)
            rate = gb_per_second * 1e9 / calibration.bytes_per_token
            seen = (await engine.command("samples"))["copies_measured"]
            bench = Bench(engine, calibration, rate)
            await bench.pairs(context, 0, 1)  # the first copies map the host memory's pages
            for requests in beside:
                say(f"returns beside {requests} requests")
                run.pairs[requests] = await bench.pairs(context, requests, count)
            reply: dict[str, Any] = await engine.command("samples")
            new = reply["copies_measured"] - seen
            run.copies = [tuple(copy) for copy in reply["copies"][-new:]] if new else []
        finally:
            await engine.close()
    return run
