"""A session's request in the engine, and another one in its place when the engine has died.

A `LiveRequest` is one request of vLLM's: it takes chunks and yields outputs. A `SurvivingRequest`
has one at a time. Behind a death it sends all tokens of the turn again, of which those that were
sampled are now the end of a prompt. vLLM counts limits and penalties over the output alone, so the
settings have to say what the output no longer shows (`behind`).
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from vllm import SamplingParams
from vllm.engine.protocol import StreamingInput
from vllm.exceptions import VLLMValidationError
from vllm.inputs import tokens_input
from vllm.lora.request import LoRARequest
from vllm.outputs import RequestOutput
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from caesura.intercept.calls.events import TurnKind
from caesura.scheduler.errors import (
    ContextOverflow,
    EngineDied,
    EngineFailed,
    RepeatedDeaths,
    RequestAborted,
    RequestFailed,
    UsageError,
)
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.scheduler.records import ContinuedRecord
from caesura.scheduler.session_log import SampledFacts
from caesura.scheduler.vllm.client.data_parallel import Route, Routes
from caesura.scheduler.vllm.client.grammar import GrammarMaker
from caesura.scheduler.vllm.client.rendering.conversation import Rendering
from caesura.scheduler.vllm.client.rendering.media import NO_MEDIA, Media
from caesura.scheduler.vllm.client.sampled import TokenVersions, logprobs_of
from caesura.scheduler.vllm.client.sampling import SamplingRules
from caesura.scheduler.vllm.client.turns import Language, TurnMaker
from caesura.scheduler.vllm.engine.export.exporter import listeners_of
from caesura.scheduler.vllm.wire import REPLAYED_KEY

logger = logging.getLogger(__name__)


MAX_FRUITLESS_DEATHS = 3
"""At so many deaths in a row, without a token between, a turn may be the cause, and fails."""


MAX_DEATHS = 4
"""So does a session at so many deaths since it last ended a turn without one.

It is one less than the deaths of a crash loop, which end the server.
"""


DEATH_SECONDS = 5.0
"""How long an engine that was told to end may live after it has dropped its requests."""


MAX_SEED = 1 << 63


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How vLLM treats a request, beside its tokens and its sampling."""

    resumable: bool = True
    """Whether it takes further chunks after a pause."""
    cache_salt: str | None = None
    priority: int = 0
    adapter: LoRARequest | None = None
    trace_headers: Callable[[], Mapping[str, str]] | None = None
    """Returns the W3C trace context, if vLLM makes spans."""


class LiveRequest:
    """One vLLM request."""

    def __init__(
        self,
        llm: AsyncLLM,
        request_id: str,
        tokens: Sequence[int],
        params: SamplingParams,
        options: RequestOptions = RequestOptions(),
        media: Media = NO_MEDIA,
        route: Route | None = None,
    ) -> None:
        """Start a request with `tokens`, which hold the placeholders of `media`.

        `route` names the engine that serves it, where there are several.
        """
        self._llm = llm
        self._route = route or Route()
        self._options = options
        self._request_id = request_id
        self._chunks: asyncio.Queue[StreamingInput | None] = asyncio.Queue()
        self._versions = TokenVersions(llm, request_id)
        self._pauses: int = getattr(llm, "aborting_pauses", 0)
        first: Any = media.prompt(tokens, options.cache_salt)
        prompt: Any = self._inputs() if options.resumable else first
        headers = None
        traces = llm.observability_config.otlp_traces_endpoint is not None
        if options.trace_headers is not None and traces:
            headers = options.trace_headers()  # with tracing off, vLLM would log a warning
        self._outputs = llm.generate(
            prompt,
            params,
            request_id,
            trace_headers=headers,
            lora_request=options.adapter,
            priority=options.priority,
            data_parallel_rank=self._route.rank,
        )
        if options.resumable:
            self._chunks.put_nowait(StreamingInput(first, params))

    @property
    def is_lost(self) -> bool:
        """Whether the engine of the request has died, or another one has taken its place."""
        return bool(self._llm.errored)

    @property
    def met_a_pause(self) -> bool:
        """Whether its engine was paused since, with all requests aborted."""
        return getattr(self._llm, "aborting_pauses", 0) != self._pauses

    async def engine_after_abort(self, seconds: float) -> Literal["dead", "paused", "running"]:
        """Return the state of the engine that dropped the request; it may die within `seconds`.

        An engine that ends itself drops its requests first, and answers no question any more.
        """
        handler = self._llm.output_handler
        if self.is_lost or handler is None:
            return "dead" if self.is_lost else "running"
        asked = asyncio.ensure_future(self._llm.is_paused())
        try:
            await asyncio.wait(
                [asked, handler], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if asked.done() and asked.exception() is None:
                return "paused" if asked.result() else "running"
            await asyncio.wait([handler], timeout=seconds)
        finally:
            asked.cancel()
        return "dead" if self.is_lost else "running"

    def push(self, tokens: Sequence[int], params: SamplingParams) -> None:
        """Append tokens and continue the request.

        vLLM drops the last sampled token of a turn, whose KV was never computed, so the caller
        sends it again at the head of `tokens`.
        """
        # vLLM extends the list that it receives, so it gets a copy.
        chunk = tokens_input(list(tokens), cache_salt=self._options.cache_salt)
        self._chunks.put_nowait(StreamingInput(chunk, params))
        self._route.pushed(tokens)

    @property
    def rank(self) -> int | None:
        """The engine that serves the request, None where there is only one."""
        return self._route.rank

    async def next(self) -> RequestOutput:
        """Return the next output of a turn; the one that stops it has a finish reason.

        Raises `EngineDied` if the engine died, `RequestFailed` if vLLM fails at the request, and
        `UsageError` if it refuses the request.
        """
        output: RequestOutput | None = None
        try:
            output = await anext(self._outputs)
        except StopAsyncIteration:
            raise RequestFailed("the engine ended the request without a finish reason") from None
        except VLLMValidationError as error:
            raise UsageError(str(error)) from error
        except (EngineDeadError, EngineGenerateError) as error:
            dead = isinstance(error, EngineDeadError) or self.is_lost
            raise (EngineDied if dead else RequestFailed)(f"the engine failed: {error}") from error
        finally:
            if output is None:
                self._route.ended()
        self._route.sampled(output)
        return output

    def facts(self, output: RequestOutput) -> SampledFacts:
        """Return what is known of an output's tokens; each output is asked for once, in order."""
        made = output.outputs[0]
        return SampledFacts(logprobs_of(made), self._versions.of(made))

    async def turn(self) -> AsyncGenerator[RequestOutput, None]:
        """Yield the outputs of a turn, up to the one that stops it; see `next`."""
        while True:
            output = await self.next()
            yield output
            if output.outputs[0].finish_reason is not None:
                return

    async def end(self) -> None:
        """End a request that has stopped; no more tokens may be pushed."""
        if self._options.resumable:
            self._chunks.put_nowait(None)
        with contextlib.suppress(EngineDeadError, EngineGenerateError):
            async for _ in self._outputs:
                pass

    async def abort(self) -> None:
        """Remove the request from the engine in any state, and free its blocks and its slot."""
        self._route.ended()
        with contextlib.suppress(EngineDeadError):
            await self._llm.abort(self._request_id)
        # If another task reads the turn, that turn ends by itself with the reason "abort".
        with contextlib.suppress(RuntimeError, EngineDeadError):
            await self._outputs.aclose()

    async def _inputs(self) -> AsyncIterator[StreamingInput]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk


class _Dropped(Exception):
    """The engine dropped a request that goes on from its tokens in another one."""


@dataclass(slots=True)
class SentTurn:
    """A turn on its way through the engine."""

    tokens: list[int]
    """The context, what the turn appended, and what the model has sampled since."""
    prompt_tokens: int
    """How many of the tokens were there when the turn began."""
    kind: TurnKind
    sampling: Sampling
    thinking: str
    """The marker of thinking after which the turn begins, or empty."""
    media: Media
    holds: bool = False
    """Whether the request waits at the turn's end, also without a call."""
    params: Any = None
    """vLLM's `SamplingParams` of the request that was sent last."""
    sent_tokens: int = 0
    """How many of the tokens that request was sent with."""
    cached_tokens: int = 0
    """How many of the prompt's tokens the first request found in the cache."""
    resent: int = 0
    """How often it went out in another request: behind a death, and behind an abort."""
    deaths: int = 0
    """How many engines have died under the turn."""
    fruitless_deaths: int = 0
    """How many of them, the last ones, without a token between."""

    @property
    def sampled(self) -> list[int]:
        """What the model has sampled in this turn so far."""
        return self.tokens[self.prompt_tokens :]


class Host(Protocol):
    """What the sessions of an engine need of it."""

    @property
    def llm(self) -> AsyncLLM:
        """vLLM's present client, which a restart replaces; raises `EngineFailed` once closed."""

    @property
    def context_tokens(self) -> int:
        """The model's context window in tokens."""

    @property
    def language(self) -> Language:
        """How the model writes its turns."""

    @property
    def rendering(self) -> Rendering:
        """What makes tokens of messages."""

    @property
    def sampling(self) -> SamplingRules:
        """What makes vLLM's sampling parameters."""

    @property
    def grammars(self) -> GrammarMaker:
        """What makes the grammars of turns."""

    @property
    def routes(self) -> Routes:
        """Where new requests go, among data-parallel engines."""

    def adapter(self, name: str | None) -> LoRARequest | None:
        """Return the adapter of a name, or None for no name; raise `UsageError` if it is gone."""

    async def command(
        self, message: str | Mapping[str, Any], rank: int | None = None
    ) -> dict[str, Any]:
        """Send the scheduler a control message and return its reply."""

    async def revived(self, error: EngineFailed) -> None:
        """Wait until the engine lives again after `error`, or raise it."""


def _new_id() -> str:
    return f"session-{uuid.uuid4().hex}"


class SurvivingRequest:
    """The request of one session; a session has one at a time, and none between its turns."""

    def __init__(
        self, host: Host, spec: SessionSpec, turns: TurnMaker, *, outlives_pauses: bool = False
    ) -> None:
        """Create it for a session.

        With `outlives_pauses` a turn that decodes goes on from its tokens when the engine was
        paused with all requests aborted, as trainers do it. Otherwise the turn fails.
        """
        self._host = host
        self._outlives_pauses = outlives_pauses
        self._spec = spec
        self._turns = turns
        self._live: LiveRequest | None = None
        self._closed = False
        self._resumes = False
        """Whether the live request has paused before the present turn."""
        self._deaths = 0
        self._sent = 0.0
        self.trace_headers: Callable[[], Mapping[str, str]] | None = None
        """Returns the W3C trace context for the next request, if vLLM makes spans."""
        self.request_id = _new_id()
        """The id of the latest request, or of the first one before that is sent.

        The engine's records may append a `-` and more to it.
        """

    @property
    def is_live(self) -> bool:
        """Whether there is a request, which may have been lost with its engine."""
        return self._live is not None

    def prepare(self, turn: SentTurn) -> None:
        """Make the parameters of the turn's next request.

        Raises `ContextOverflow` if nothing can be sampled, and `UsageError` for settings that the
        engine refuses.
        """
        host, sampled = self._host, turn.sampled
        room = host.context_tokens - len(turn.tokens)
        if room < 1:
            raise ContextOverflow(
                # LiteLLM recognises an overflow by the first words.
                f"This model's maximum context length is {host.context_tokens} tokens, and"
                f" the conversation has {len(turn.tokens)}; shorten it or raise --max-model-len",
                len(turn.tokens),
                host.context_tokens,
            )
        sampling = behind(turn.sampling, sampled)
        max_tokens = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        kind: TurnKind = "holding" if turn.holds else turn.kind
        watch = self._turns.watch(kind, sampling, turn.thinking)
        tools = self._spec.known_tools if self._turns.watched else ()
        grammar = host.grammars.of_turn(tools, sampling, turn.thinking)
        extra_args = {**(watch or {}), **self._spec.origin.to_wire()}
        if sampled:
            extra_args[REPLAYED_KEY] = len(sampled)
        turn.params = host.sampling.params(sampling, max_tokens, extra_args, grammar)

    async def send(
        self, turn: SentTurn, appended: Sequence[int] | None = None, *, died: bool = False
    ) -> None:
        """Send a turn that is prepared: a live request gets what was `appended`.

        Without `appended`, and if the request was lost, the turn's tokens go out in a new request.
        `died` says that it was lost with its engine, which the records are told.
        """
        live, before, sent = self._live, self.request_id, self._sent
        died = live is not None and (died or live.is_lost)
        if live is not None and (appended is None or died):
            await self.abort()
            live = None
        if live is None or appended is None:
            self._begin(turn)
            if died:
                record = ContinuedRecord(self.request_id, before, self._sent, sent)
                listeners_of(self._host.llm.vllm_config).tell(0, [record.entry()])
        else:
            self._resumes = True
            live.push(appended, turn.params)
        turn.sent_tokens = len(turn.tokens)

    def _begin(self, turn: SentTurn) -> None:
        self._resumes = False
        if self._sent:
            self.request_id = _new_id()
        self._sent = time.time()
        spec, host = self._spec, self._host
        salt_of = getattr(host.llm, "salt", None)
        salt = spec.cache_salt if salt_of is None else salt_of(spec.cache_salt)
        options = RequestOptions(
            self._turns.pausing,
            salt,
            spec.priority,
            host.adapter(spec.adapter),
            self.trace_headers,
        )
        route = host.routes.of(turn.tokens, salt)
        self._live = LiveRequest(
            host.llm, self.request_id, turn.tokens, turn.params, options, turn.media, route
        )

    async def next(self, turn: SentTurn) -> RequestOutput:
        """Return a turn's next output, from the engine or from the one in place of a dead one.

        The caller adds the output's tokens to the turn. Raises `EngineFailed` if the engine died
        and will not live again, and `RepeatedDeaths` if engine after engine dies. Raises
        `RequestFailed` if the engine lives and ended the request, or aborted it within a turn.
        """
        while True:
            live = self._live
            assert live is not None
            try:
                output = await live.next()
                finish = output.outputs[0].finish_reason
                if finish == "abort":
                    await self._check_abort(live, idle=len(turn.tokens) == turn.sent_tokens)
            except _Dropped:
                logger.info("aborted in a pause: going on with %d tokens", len(turn.tokens))
                turn.resent += bool(turn.sampled)
                self.prepare(turn)
                await self.send(turn)
            except EngineDied as error:
                await self._outlive(turn, error)
            else:
                if finish is not None and not turn.deaths:
                    self._deaths = 0
                return output

    def facts(self, output: RequestOutput) -> SampledFacts | None:
        """Return what is known of the tokens of the latest output; None if it was closed."""
        return None if self._live is None else self._live.facts(output)

    async def _outlive(self, turn: SentTurn, error: EngineDied) -> None:
        """Send the turn to the next engine, once it lives; raise what ends the session instead."""
        turn.deaths += 1
        turn.resent += 1
        self._deaths += 1
        got_on = len(turn.tokens) > turn.sent_tokens
        turn.fruitless_deaths = 1 if got_on else turn.fruitless_deaths + 1
        if turn.fruitless_deaths >= MAX_FRUITLESS_DEATHS or self._deaths >= MAX_DEATHS:
            raise RepeatedDeaths(
                f"{self._deaths} engines died under this session, which may be the cause, so it"
                " does not go on"
            ) from error
        await self._host.revived(error)
        if self._closed:
            raise EngineFailed("the session was closed with its engine dead") from error
        logger.info("going on with %d tokens in a new engine", len(turn.tokens))
        self.prepare(turn)
        await self.send(turn, died=True)

    async def _check_abort(self, live: LiveRequest, *, idle: bool) -> None:
        """Raise what an abort by the engine means, if it was not asked for here.

        `idle`: nothing of the turn has come. A session that has paused then goes on from its
        tokens, as one between two requests does on stock vLLM. What decodes is meant by an abort.
        """
        state = "closed" if self._closed else await live.engine_after_abort(DEATH_SECONDS)
        if state == "closed" or self._closed:
            return
        if state == "dead":
            raise EngineDied("the engine dropped the request before it ended")
        if idle and self._resumes:
            raise _Dropped
        if self._outlives_pauses and live.met_a_pause:
            raise _Dropped  # vLLM queues the next request until the engine is resumed
        what = "paused the engine, which" if state == "paused" else "has"
        when = " once the engine is resumed" if state == "paused" else ""
        raise RequestAborted(
            f"the engine's operator {what} aborted this request before its turn ended: send it"
            f" again{when}"
        )

    async def expect_pause(self, seconds: float) -> None:
        """Send a forecast of the present pause. Raises `UsageError` and `EngineFailed`."""
        message = {"command": "expect_pause", "request": self.request_id, "seconds": seconds}
        rank = self._live.rank if self._live is not None else None
        await self._host.command(message, rank)

    async def cut(self, tokens: int) -> bool:
        """Cut the present turn at the next safe place; return whether the scheduler will.

        Raises `UsageError` and `EngineFailed`.
        """
        message = {"command": "cut", "request": self.request_id, "tokens": tokens}
        rank = self._live.rank if self._live is not None else None
        return bool((await self._host.command(message, rank)).get("taken"))

    async def end(self) -> None:
        """End a request that has stopped."""
        live, self._live = self._live, None
        if live is not None:
            await live.end()

    async def abort(self) -> None:
        """Remove the request from the engine in any state."""
        live, self._live = self._live, None
        if live is not None:
            await live.abort()

    async def close(self, *, stopped: bool) -> None:
        """End the request for good; one that has `stopped` at a call ends as a finished one."""
        self._closed = True
        await (self.end() if stopped else self.abort())


def behind(sampling: Sampling, sampled: Sequence[int]) -> Sampling:
    """Return the settings for the rest of a turn, of which `sampled` exists.

    What the limits count is exact. So is the frequency penalty, as a bias of the tokens that exist.
    The presence penalty counts twice for a token that is sampled again. Random numbers cannot go on
    where they stood: another seed at least does not repeat those that were used.
    """
    if not sampled:
        return sampling
    count = len(sampled)
    limit, least, seed = sampling.max_tokens, sampling.min_tokens, sampling.seed
    return replace(
        sampling,
        # One token at least, since a turn that has reached its limit has ended.
        max_tokens=None if limit is None else max(1, limit - count),
        min_tokens=None if least is None else max(0, least - count),
        seed=None if seed is None else (seed + count) % MAX_SEED,
        logit_bias=_biases(sampling, sampled),
    )


def _biases(sampling: Sampling, sampled: Sequence[int]) -> dict[int, float]:
    biases = dict(sampling.logit_bias)
    presence = sampling.presence_penalty or 0.0
    frequency = sampling.frequency_penalty or 0.0
    if presence or frequency:
        for token, count in Counter(sampled).items():
            biases[token] = biases.get(token, 0.0) - presence - frequency * count
    return biases
