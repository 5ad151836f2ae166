"""One conversation with vLLM, by a live request that pauses and resumes.

The session keeps the tokens of its context and appends new ones to those in the engine. While a
turn waits for results, its request stays alive in the engine. After the last turn the session can
continue from its tokens, with a new request and the prefix cache.
"""

import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from vllm.outputs import CompletionOutput, RequestOutput

from caesura.intercept.calls.events import (
    CallFinished,
    CallMalformed,
    Event,
    FollowUpReport,
    ReasoningDelta,
    ResumeReport,
    TextDelta,
    TurnEnded,
)
from caesura.intercept.calls.watch import Turn, Verdict
from caesura.scheduler.errors import ContextOverflow, EngineFailed, UsageError
from caesura.scheduler.media import has_media, text_of
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.session_log import SessionLog
from caesura.scheduler.vllm.client.live import LiveRequest
from caesura.scheduler.vllm.client.media.prompt import NO_MEDIA, Media
from caesura.scheduler.vllm.client.parsing.logprobs import ShownLogprobs
from caesura.scheduler.vllm.client.reader import TurnReader
from caesura.scheduler.vllm.client.tokens.text import TokenText
from caesura.scheduler.vllm.client.turn_maker import TurnMaker
from caesura.scheduler.vllm.wire import REPORT_KEY

if TYPE_CHECKING:
    from caesura.scheduler.vllm.client.engine import VllmEngine

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Appended:
    """The tokens that a turn appends; with `replaces` they are the whole context."""

    tokens: list[int]
    turn: Turn = "fresh"
    replaces: bool = False
    follow_up: FollowUpReport | None = None
    media: Media = NO_MEDIA


class VllmSession:
    """A conversation; the class implements `caesura.runtime.engine.EngineSession`."""

    def __init__(
        self, engine: "VllmEngine", spec: SessionSpec, log: SessionLog | None = None
    ) -> None:
        self._engine = engine
        self._log = log
        self._spec = spec
        self._turns = TurnMaker(engine, spec)
        self._asked: tuple[Message, ...] = ()
        self._history: list[Message] = []
        self._reader: TurnReader | None = None
        self._token_text: TokenText | None = None
        self._live: LiveRequest | None = None
        self._held_results: list[Message] = []
        self._prefill_done = False
        self._in_line = False
        self._in_turn = False
        self._closed = False
        self._ends = engine.ends
        self._logprobs: ShownLogprobs | None = None
        self._media = NO_MEDIA
        self.tokens: list[int] = []
        """All tokens of the context, including the last sampled one."""
        self.trace_headers: Callable[[], Mapping[str, str]] | None = None
        """Returns the W3C trace context for the next request, if vLLM makes spans."""
        self.request_id: str | None = None
        """The id of the latest request; the engine's records may append a `-` and more to it."""
        self.sent_at: float | None = None
        """When the latest turn's tokens were handed to vLLM, a Unix time; None before."""

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Append `messages` and decode until the turn ends; see `EngineSession.turn`."""
        if self._closed:
            raise UsageError("the session is closed; open another")
        if self._in_turn:
            raise UsageError("a session takes one turn at a time; open another session")
        self._in_turn = True
        self.sent_at = None
        done = False
        try:
            sampling = sampling or self._spec.sampling
            count = partial(self._engine.renderer.count_spelled, messages)
            spelled = await self._engine.render_threads.run(count, messages)
            appended = await self._append(messages, sampling)
            if self._closed:  # closed while rendering: a request sent now would never be freed
                raise UsageError("the session is closed; open another")
            request = await self._send(appended, sampling)
            self.sent_at = time.time()
            async with aclosing(self._read(request, appended)) as events:
                async for event in events:
                    if spelled and isinstance(event, TurnEnded):
                        event = replace(event, spelled_tokens=spelled)
                    yield event
            done = True
        finally:
            self._in_turn = False
            if not done:
                # The engine's progress is unknown, so this session cannot continue.
                await self.close()

    async def remember(self, answer: Sequence[Message]) -> None:
        """Keep the tokens for a session that follows; see `EngineSession.remember`."""
        reader = self._reader
        if reader is None or self._in_turn or self._in_line or self._held_results:
            return
        if has_media(self._history):
            return  # the tokens alone do not tell the pictures, also those in tools' results
        if self._spec.prefill or self.tokens[-1] in self._ends - self._engine.ends:
            return  # the answer lacks the begin that the caller wrote, or its last token
        made = sum(not call.inline for call in reader.calls)
        # The tokens must hold no call that the follow-up will not answer, and no hidden text.
        if made == len(answer[-1].get("tool_calls") or ()) and reader.is_whole:
            messages = (*self._asked, *answer)
            await self._engine.splicer.remember(messages, self._spec, self.tokens)

    async def expect_pause(self, seconds: float) -> None:
        """Tell the scheduler how long the pause will last; see `EngineSession.expect_pause`."""
        if self._live is None or self._in_turn or self._closed:
            return
        message = {"command": "expect_pause", "request": self.request_id, "seconds": seconds}
        try:
            await self._engine.command(message, self._live.rank)
        except (UsageError, EngineFailed) as error:
            # The forecast is only advice. If the engine is dead, the next turn reports it.
            logger.debug("the forecast of a pause was not taken: %s", error)

    async def close(self, *, follow_up: bool = False) -> None:
        """End the session in any state and free its blocks and its slot.

        With `follow_up`, a request that is paused at a call is finished instead of aborted. The
        scheduler then keeps its KV cache for the request that brings the result.
        """
        self._closed = True
        live, self._live = self._live, None
        if live is None:
            return
        if follow_up and not self._in_turn:
            await live.end()
        else:
            await live.abort()

    # -- what goes in ----------------------------------------------------------------------------

    async def _append(self, messages: Sequence[Message], sampling: Sampling) -> _Appended:
        """Return the tokens of `messages` after the context; render in a thread if large."""
        if self._reader is None:
            return await self._begin(messages, sampling)
        if self._in_line:
            return await self._append_in_line(self._reader, messages)
        messages = [*self._held_results, *messages]
        self._held_results = []
        turn = self._reader.message()
        self._add_turn(turn)
        if has_media(messages):
            self._history.extend(messages)
            return await self._render()
        splicer, spec, earlier = self._engine.splicer, self._spec, self._history[:-1]
        bridge = await splicer.append(turn, messages, spec, self.tokens, sampling, earlier)
        self._history.extend(messages)
        if bridge is not None:
            return _Appended(bridge)
        logger.info("the chat template rewrites earlier turns: rendering all of them again")
        return await self._render()

    def _add_turn(self, turn: Message) -> None:
        """Append the model's turn to the history, behind the begin that the caller gave it."""
        if self._spec.prefill and not self._prefill_done:
            begin = self._history.pop()
            turn = {**turn, "content": f"{begin.get('content') or ''}{turn.get('content') or ''}"}
        self._prefill_done = True
        self._history.append(turn)

    async def _begin(self, messages: Sequence[Message], sampling: Sampling) -> _Appended:
        """Return the tokens of the first messages, which may continue an earlier answer."""
        self._asked = tuple(messages)
        self._history.extend(messages)
        splicer, spec = self._engine.splicer, self._spec
        follow_up = await splicer.follow_up(self._asked, spec, sampling)
        if follow_up is None:
            return await self._render()
        if follow_up.tokens is None:
            return await self._render(follow_up.report)
        return _Appended(follow_up.tokens, replaces=True, follow_up=follow_up.report)

    async def _render(self, report: FollowUpReport | None = None) -> _Appended:
        history, tools = tuple(self._history), self._spec.tools
        prefill = self._spec.prefill and self._reader is None
        template = self._spec.template
        if has_media(history):
            made = await self._engine.media.prompt(history, tools, template, prefill)
            return _Appended(made[0], replaces=True, follow_up=report, media=made[1])
        prompt = partial(self._engine.renderer.prompt, history, tools, template, prefill)
        tokens = await self._engine.render_threads.run(prompt, history, tools)
        return _Appended(tokens, replaces=True, follow_up=report)

    async def _append_in_line(self, reader: TurnReader, messages: Sequence[Message]) -> _Appended:
        """Return the tokens for an inline call's result; hold other results until the turn ends."""
        call_id = reader.calls[-1].call_id
        results = {str(message.get("tool_call_id")): message for message in messages}
        if call_id not in results:
            raise UsageError(f"the messages lack a result for the inline call {call_id}; add one")
        content = text_of(results.pop(call_id).get("content"))
        self._held_results.extend(results.values())
        text = reader.answer(content)
        reader.raw += text
        encode = partial(self._engine.renderer.encode_literal, text)
        return _Appended(
            await self._engine.render_threads.run(encode, text),
            "holding" if self._held_results else "begun",
        )

    async def _send(self, appended: _Appended, sampling: Sampling) -> LiveRequest:
        """Send the tokens to the engine, to the live request or as a new one; return it."""
        context = [] if appended.replaces else self.tokens
        room = self._engine.context_tokens - len(context) - len(appended.tokens)
        if room < 1:
            raise ContextOverflow(
                # LiteLLM recognises an overflow by the first words.
                f"This model's maximum context length is {self._engine.context_tokens} tokens, and"
                f" the conversation has {len(context) + len(appended.tokens)}; shorten it or raise"
                " --max-model-len"
            )
        max_tokens = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        thinking = ""
        matters = self._turns.watched or self._engine.thinking or sampling.text is not None
        if matters and appended.turn == "fresh":
            thinking = self._engine.renderer.thinking(appended.tokens)
        watch = self._turns.watch(appended.turn, sampling, thinking)
        tools = self._spec.tools if self._turns.watched else ()
        grammar = self._engine.grammars.of_turn(tools, sampling, thinking)
        self._ends = self._engine.ends | frozenset(sampling.stop_token_ids)
        self._logprobs = ShownLogprobs.of(sampling.logprobs, self._engine.bytes_of)
        extra_args = {**(watch or {}), **self._spec.origin.to_wire()}
        params = self._engine.sampling_params(sampling, max_tokens, extra_args, grammar)
        if self._live is not None and appended.replaces:
            await self._live.abort()
            self._live = None
        if appended.replaces:
            self._media = appended.media
        if appended.turn == "fresh":
            self._reader = self._turns.reader(sampling, thinking)
            self._token_text = self._engine.token_text()
        request = self._live
        if request is not None:
            request.push([self.tokens[-1], *appended.tokens], params)
        else:
            self.request_id = f"session-{uuid.uuid4().hex}"
            whole = [*context, *appended.tokens]
            request = LiveRequest(
                self._engine.llm,
                self.request_id,
                whole,
                params,
                resumable=self._turns.pausing,
                trace_headers=self.trace_headers,
                cache_salt=self._spec.cache_salt,
                priority=self._spec.priority,
                media=self._media,
                route=self._engine.routes.of(whole, self._spec.cache_salt),
            )
            self._live = request
        self.tokens = [*context, *appended.tokens]
        return request

    # -- what comes out --------------------------------------------------------------------------

    async def _read(self, request: LiveRequest, appended: _Appended) -> AsyncGenerator[Event, None]:
        assert self._reader is not None
        calls_before, begin = len(self._reader.calls), self._reader.size_bytes
        completion_tokens = 0
        last: RequestOutput | None = None
        async with aclosing(request.turn()) as outputs:
            async for output in outputs:
                last = output
                piece = output.outputs[0]
                token_ids = list(piece.token_ids)
                completion_tokens += len(token_ids)
                text = self._take(piece, token_ids)
                for event in self._reader.push(
                    text,
                    token_ids,
                    cut=piece.finish_reason == "length",
                    ended=piece.finish_reason is not None,
                    at_stop=_report_of(output).get("verdict") == Verdict.STOP.value,
                ):
                    yield self._with_logprobs(event)
        assert last is not None
        finish = last.outputs[0].finish_reason
        if finish not in ("stop", "length"):
            raise EngineFailed(f"the engine ended the request early: finish reason {finish!r}")
        report = _report_of(last)
        paused = bool(report.get("paused"))
        self._in_line = paused and self._reader.called_in_line(calls_before)
        if not self._in_line:
            for event in await self._end(self._reader):
                yield self._with_logprobs(event)
        reason: Literal["call", "stop", "length"] = "stop"
        if finish == "length":
            reason = "length"
        elif len(self._reader.calls) > calls_before or self._held_results:
            reason = "call"
        if not paused or reason != "call":
            self._live = None
            self._in_line = False
            await request.end()
        resume = ResumeReport(**report["resume"]) if report.get("resume") else None
        yield TurnEnded(
            reason=reason,
            prompt_tokens=len(appended.tokens),
            completion_tokens=completion_tokens,
            cached_tokens=resume.cached_tokens if resume else last.num_cached_tokens or 0,
            resume=resume,
            follow_up=appended.follow_up,
            stop_text=self._reader.stop_text if reason == "stop" else None,
            reasoning_tokens=self._reasoning_tokens(self._reader, completion_tokens, begin),
        )

    async def _end(self, reader: TurnReader) -> list[Event]:
        """End the turn and return its last events; a large turn that is read now has a thread."""
        held = reader.held_characters
        return await self._engine.render_threads.run_sized(lambda: [*reader.end()], held)

    def _reasoning_tokens(self, reader: TurnReader, decoded: int, begin: int) -> int:
        """Return how many of the last `decoded` tokens are reasoning; they begin at byte `begin`.

        A token that the tokenizer's decoder writes with other bytes shifts the count by as many.
        """
        if not reader.reasoning:
            return 0
        last = self.tokens[len(self.tokens) - decoded :]
        sizes = (len(self._engine.bytes_of(token)) for token in last)
        return reader.reasoning_tokens(sizes, begin)

    def _take(self, piece: CompletionOutput, token_ids: list[int]) -> str:
        """Record decoded tokens and return their text, without that of a turn's end."""
        self.tokens.extend(token_ids)
        text = piece.text if self._token_text is None else self._token_text.push(token_ids)
        if self._logprobs is not None:
            self._logprobs.push(token_ids, piece.logprobs or ())
        if piece.finish_reason is not None and token_ids:
            text = text.removesuffix(self._end_text(token_ids[-1]))
        return text

    def _end_text(self, token_id: int) -> str:
        """Return the text of the token if it ends turns, for the model or for the caller."""
        renderer = self._engine.renderer
        asked = token_id in self._ends - self._engine.ends
        return renderer.text_of(token_id) if asked else renderer.end_text(token_id)

    def _with_logprobs(self, event: Event) -> Event:
        """Return the event, with the tokens of its text if the caller asked for them."""
        if self._logprobs is None:
            return event
        if isinstance(event, TextDelta):
            return TextDelta(event.text, self._logprobs.shown(event.text))
        if isinstance(event, ReasoningDelta):
            self._logprobs.reasoned(event.text)
        if isinstance(event, CallFinished | CallMalformed):
            self._logprobs.call_ended()
        return event


def _report_of(output: RequestOutput) -> dict[str, Any]:
    """Return the scheduler's report in the last output of a turn; other outputs have none."""
    report: dict[str, Any] = (output.kv_transfer_params or {}).get(REPORT_KEY, {})
    return report
