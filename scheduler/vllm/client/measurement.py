"""Measurement of an engine with synthetic traffic: its steps, its link, and the fit of both models.

Traffic is requests of random tokens, paused sessions, and concurrent decoding. Steps are prefill
chunks and decode batches of many sizes, at many contexts. The link to the host is measured with
copies of paused sessions out and in.
"""

import asyncio
import random
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import date
from math import log2
from statistics import median
from typing import Any, NamedTuple, Protocol

from vllm import SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from caesura.intercept.calls.watch import WatchPlan
from caesura.intercept.kv.costs import CostModel, Direction
from caesura.intercept.kv.step_budget import IDLE_STEP_SECONDS
from caesura.scheduler.calibration import Calibration, Step, fit, fit_rate
from caesura.scheduler.errors import EngineFailed, UsageError
from caesura.scheduler.vllm.client.data_parallel import Routes
from caesura.scheduler.vllm.client.request import LiveRequest
from caesura.scheduler.vllm.engine.compose import identity
from caesura.scheduler.vllm.wire import REPORT_KEY, WATCH_KEY

Progress = Callable[[float, str], None]
"""Callback that receives the share done, from 0 to 1, and the name of the current phase."""


QUICK_SECONDS = (3.0, 1.2)


FULL_SECONDS = (28.0, 12.0)
"""Seconds for steps and for the link."""


MIN_PROMPT_TOKENS = 16


DECODED = 12
"""Tokens that a batch decodes; a coarse measurement decodes half as many."""


MAX_SEQUENCES = 256


MAX_CONTEXT_TOKENS = 8192


BANDS = 8
"""Contexts within an eighth of an octave count as the same."""


MIN_MEDIANS = 16
"""With this many medians of several steps, steps that occurred only once are left out."""


PIECES = 4
"""Number of copies that a session's context is divided into."""


MAX_COPY_TOKENS = 4096


BESIDE = (4, 256)
"""Number of sequences that decode during copies, and the tokens of each one's prompt."""


MIN_SIZES = 3
"""With medians for this many sizes, a fit leaves out the sizes that were copied only once."""


PATIENCE_SECONDS = 5.0


class Measured(Protocol):
    """What measuring needs of an engine."""

    @property
    def llm(self) -> AsyncLLM:
        """vLLM's client."""

    tokenizer: Any
    context_tokens: int

    @property
    def routes(self) -> Routes:
        """Where requests go, among data-parallel engines."""

    async def command(self, message: str | Mapping[str, Any]) -> dict[str, Any]:
        """Send the scheduler a control message and return its reply."""


class Traffic:
    """Drives one engine, the first of data-parallel ones.

    Every prompt is random, so the prefix cache never holds one.
    """

    def __init__(self, engine: Measured, seed: int = 1) -> None:
        self.engine = engine
        self._random = random.Random(seed)
        tokenizer = engine.tokenizer
        known = min(len(tokenizer), engine.llm.model_config.get_vocab_size())
        # Special tokens may have side effects, such as standing for images.
        special = {*tokenizer.all_special_ids, *getattr(tokenizer, "added_tokens_decoder", ())}
        self._ids = [token for token in range(known) if token not in special]

    def prompt(self, tokens: int) -> list[int]:
        """Return a prompt of `tokens` random tokens."""
        return self._random.choices(self._ids, k=tokens)

    async def decode(self, prompts: Iterable[Sequence[int]], tokens: int) -> None:
        """Decode `tokens` tokens after each of the prompts, all at once.

        Raises `EngineFailed`, and `UsageError` for what vLLM refuses.
        """
        await asyncio.gather(*(self._decode(prompt, tokens) for prompt in prompts))

    @asynccontextmanager
    async def beside(self, sequences: int, context: int) -> AsyncIterator[None]:
        """Decode `sequences` requests within the context, with prompts of `context` tokens."""
        room = self.engine.context_tokens - context - 1
        begun = [asyncio.Event() for _ in range(sequences)]
        prompts = [self.prompt(context) for _ in begun]
        tasks = [
            asyncio.create_task(self._decode(prompt, room, event))
            for prompt, event in zip(prompts, begun, strict=True)
        ]
        try:
            for event, task in zip(begun, tasks, strict=True):
                waiting = asyncio.create_task(event.wait())
                await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def pause(self, prompt: Sequence[int]) -> "PausedSession":
        """Return a session that has computed `prompt` and paused at its first token."""
        session = PausedSession(self.engine, self._ids[0], prompt)
        await session.read()
        return session

    async def _decode(
        self, prompt: Sequence[int], tokens: int, begun: asyncio.Event | None = None
    ) -> None:
        kind = RequestOutputKind.FINAL_ONLY if begun is None else RequestOutputKind.DELTA
        params = SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, output_kind=kind
        )
        outputs = self.engine.llm.generate(
            tokens_input(list(prompt)),
            params,
            f"measure-{uuid.uuid4().hex}",
            data_parallel_rank=self.engine.routes.first.rank,
        )
        try:
            async with aclosing(outputs):
                async for _ in outputs:
                    if begun is not None:
                        begun.set()
        except VLLMValidationError as error:
            raise UsageError(str(error)) from error
        except (EngineDeadError, EngineGenerateError) as error:
            raise EngineFailed(f"the engine failed while it was measured: {error}") from error


class PausedSession:
    """A session that pauses as for a tool call, at a token that it is forced to decode."""

    def __init__(self, engine: Measured, token: int, prompt: Sequence[int]) -> None:
        self._token = token
        self._params = SamplingParams(
            temperature=0,
            max_tokens=2,
            ignore_eos=True,
            detokenize=False,
            allowed_token_ids=[token],
            stop_token_ids=[token],
            extra_args={WATCH_KEY: WatchPlan(("hermes",), turn="holding").to_wire()},
            output_kind=RequestOutputKind.DELTA,
        )
        name = f"measure-{uuid.uuid4().hex}"
        self._live = LiveRequest(engine.llm, name, prompt, self._params, route=engine.routes.first)

    async def read(self) -> None:
        """Wait until the session pauses; raise `EngineFailed` if it does not."""
        report: dict[str, Any] = {}
        async with aclosing(self._live.turn()) as outputs:
            async for output in outputs:
                report = (output.kv_transfer_params or {}).get(REPORT_KEY, {})
        if not report.get("paused"):
            raise EngineFailed("a measured session did not pause; use Caesura's scheduler")

    async def resume(self, tokens: Sequence[int]) -> None:
        """Resume the session with these tokens, and wait until it pauses again."""
        self._live.push([self._token, *tokens], self._params)
        await self.read()

    async def end(self) -> None:
        """End the session."""
        await self._live.end()

    async def abort(self) -> None:
        """Remove the session from the engine in any state."""
        await self._live.abort()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an engine: tokens per step, sequences, context in tokens, KV cache in tokens."""

    step: int
    sequences: int
    context: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Load:
    """Requests sent at once: their number, and the tokens of each prompt and each output.

    `behind` is the number of context tokens that were computed before.
    """

    sequences: int
    prompt: int
    decoded: int
    behind: int = 0

    @property
    def work(self) -> int:
        """The approximate number of tokens to compute."""
        return self.sequences * self.prompt + self.behind + self.decoded


def loads(limits: Limits, coarse: bool) -> list[Load]:
    """Return the loads to measure, least work first; a `coarse` measurement has fewer sizes."""
    longest = min(limits.context - DECODED - 2, limits.capacity // 2, MAX_CONTEXT_TOKENS)
    factor, decoded = (4.0, DECODED // 2) if coarse else (2.0, DECODED)
    chunk = min(limits.step, longest)
    found = [Load(1, size, 1) for size in sizes(MIN_PROMPT_TOKENS, chunk, factor)]
    behind = longest // 2
    found += [
        Load(1, size, 1, behind)
        for size in sizes(MIN_PROMPT_TOKENS, min(limits.step, longest - behind), 2 * factor)
    ]
    most = min(limits.sequences, MAX_SEQUENCES)
    for context in {MIN_PROMPT_TOKENS, longest // 4, longest // (4 if coarse else 2)}:
        fitting = min(most, limits.capacity * 3 // 4 // (context + DECODED))
        found += [Load(size, context, decoded) for size in sizes(1, fitting, factor)]
    return sorted(set(found), key=lambda load: load.work)


def sizes(least: int, most: int, factor: float) -> Iterator[int]:
    """Yield sizes from `least` to `most`, both included, that grow by `factor`."""
    size = float(least)
    while size < most:
        yield int(size)
        size = max(size * factor, int(size) + 1)
    if most >= least:
        yield most


async def measure_steps(
    traffic: Traffic, limits: Limits, seconds: float, coarse: bool, progress: Progress
) -> list[Step]:
    """Measure steps for about `seconds`; return the median of each size, without the warm-up.

    The first round omits loads that would take too long. Further rounds follow while time is left.
    """
    chosen, began = loads(limits, coarse), time.monotonic()
    for load in chosen[:: max(1, len(chosen) // 4)][:2]:
        await _run(traffic, load)
    await traffic.engine.command("samples")
    steps: list[Step] = []
    first, pace = True, 0.0
    while first or chosen:
        for index, load in enumerate(chosen):
            spent = time.monotonic() - began
            if spent + pace * load.work > seconds and (index > 8 or not first):
                if first:
                    chosen = chosen[:index]
                    break
                return medians(steps)
            progress(min(1.0, spent / seconds), "steps")
            await _run(traffic, load)
            pace = (time.monotonic() - began - spent) / load.work
            reply = await traffic.engine.command("samples")
            steps += [(int(t), int(c), float(s)) for t, c, s in reply["steps"]]
        first = False
    return medians(steps)


async def _run(traffic: Traffic, load: Load) -> None:
    prefix = traffic.prompt(load.behind)
    if prefix:
        await traffic.decode([prefix], 1)
    prompts = [prefix + traffic.prompt(load.prompt) for _ in range(load.sequences)]
    await traffic.decode(prompts, load.decoded)


def medians(steps: Iterable[Step], enough: int = MIN_MEDIANS) -> list[Step]:
    """Return the median step for each number of tokens and band of context.

    Steps that occurred only once, as requests came and went, are omitted if `enough` are left.
    """
    bands: dict[tuple[int, int], list[Step]] = defaultdict(list)
    for step in steps:
        bands[step[0], round(BANDS * log2(1 + step[1]))].append(step)
    often = [band for band in bands.values() if len(band) > 1]
    return [
        (band[0][0], round(median(step[1] for step in band)), median(step[2] for step in band))
        for band in (often if len(often) >= enough else bands.values())
    ]


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


async def measure(engine: Measured, quick: bool, progress: Progress) -> Calibration:
    """Return a calibration measured on an idle engine, and restore the engine's state.

    Of several data-parallel engines the first is measured, while the others are idle. The scheduler
    keeps its previous cost model; `VllmEngine.adopt` installs the new one. Raises `UsageError` for
    an engine that cannot be measured, and `EngineFailed`.
    """
    seconds = QUICK_SECONDS if quick else FULL_SECONDS
    share = seconds[0] / sum(seconds)
    traffic = Traffic(engine)
    async with _measured(engine) as facts:
        capacity = facts["capacity_tokens"]
        limits = Limits(
            facts["most_step_tokens"], facts["most_running"], facts["most_context"], capacity
        )
        steps = await measure_steps(
            traffic, limits, seconds[0], quick, lambda done, what: progress(done * share, what)
        )
        copies: list[Copy] = []
        if facts["host_blocks"]:
            link = Link(
                traffic, facts["block_size"], facts["host_blocks"], facts["most_context"], capacity
            )
            await link.measure(
                seconds[1], quick, lambda done, what: progress(share + done * (1 - share), what)
            )
            copies = link.copies
    progress(1.0, "done")
    try:
        return _calibration(engine, facts, steps, copies)
    except ValueError as error:
        raise UsageError(f"this engine cannot be measured: {error}") from error


def _calibration(
    engine: Measured, facts: dict[str, Any], steps: list[Step], copies: list[Copy]
) -> Calibration:
    """Return the calibration fitted to the measurements; raise `ValueError` for too few.

    The calibration has the link's rates beside a forward pass, which apply when serving.
    """
    cost, step_error = fit(steps)
    out, into = rates_of(copies, "out"), rates_of(copies, "in")
    return Calibration(
        **identity(engine.llm.vllm_config),
        block_size=facts["block_size"],
        bytes_per_token=facts["bytes_per_token"],
        date=date.today().isoformat(),
        cost=replace(cost, out_rate=out.beside, in_rate=into.beside),
        step_error=step_error,
        out_error=out.error,
        in_error=into.error,
        steps=tuple(steps),
        copies=(*out.copies, *into.copies),
        out_alone=out.alone,
        in_alone=into.alone,
    )


@asynccontextmanager
async def _measured(engine: Measured) -> AsyncIterator[dict[str, Any]]:
    """Switch the scheduler to measuring within the context, and yield its facts."""
    llm = engine.llm
    facts = await engine.command("facts")
    before = await engine.command("samples")
    await engine.command({"command": "measure", "on": True})
    # vLLM's metrics must count only clients' requests.
    metrics = getattr(llm, "_logger_ref", [None])
    counting, metrics[0] = metrics[0], None
    try:
        yield facts
    finally:
        await _end(engine)
        await llm.reset_prefix_cache(reset_connector=True)
        await engine.command({"command": "calibrate", "cost": before["cost"]})
        metrics[0] = counting


async def _end(engine: Measured) -> None:
    """Switch measuring off, once the scheduler knows that all requests have ended."""
    for _ in range(200):
        try:
            await engine.command({"command": "measure", "on": False})
            return
        except UsageError:
            await asyncio.sleep(0.02)
    raise EngineFailed("the measurement's requests did not end; restart the engine")
