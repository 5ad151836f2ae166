"""One conversation with vLLM, by a live request that pauses and resumes.

The session keeps the tokens of its context and appends new ones to those in the engine. While a
turn waits for results, its request stays alive in the engine. After the last turn the session can
continue from its tokens, with a new request and the prefix cache.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from caesura.intercept.calls.events import (
    CallFinished,
    CallMalformed,
    Event,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from caesura.intercept.calls.watch import Verdict
from caesura.scheduler.errors import EngineFailed, UsageError
from caesura.scheduler.messages import Message, Sampling, SessionSpec, has_media
from caesura.scheduler.session_log import LoggedTurn, SessionLog, TurnOutcome
from caesura.scheduler.vllm.client.parsing.reader import TurnReader
from caesura.scheduler.vllm.client.parsing.shown import ShownLogprobs
from caesura.scheduler.vllm.client.rendering.conversation import Appended, Conversation, Said
from caesura.scheduler.vllm.client.rendering.media import NO_MEDIA
from caesura.scheduler.vllm.client.rendering.tokens import ReplayedText, TokenText
from caesura.scheduler.vllm.client.request import Host, SentTurn, SurvivingRequest
from caesura.scheduler.vllm.client.turn_log import (
    TurnLog,
    TurnPiece,
    logged_pieces,
    outcome_of,
    piece_of,
)
from caesura.scheduler.vllm.client.turns import TurnMaker

logger = logging.getLogger(__name__)

REPLAY_TOKENS = 64
"""How many tokens of a log are read before other tasks run."""


@dataclass(slots=True)
class _OpenTurn:
    """A turn from its begin to its last event."""

    sent: SentTurn
    appended: Appended
    reader: TurnReader
    """That of the whole turn, which may have paused within its text and goes on."""
    calls_before: int
    begin: int
    """The byte of the reader's text at which this part of it begins."""
    logged: LoggedTurn | None
    """What the log has of it, until that is replayed."""
    replay: Iterator[TurnPiece] = field(default_factory=lambda: iter(()))
    outcome: TurnOutcome | None = None


class VllmSession:
    """A conversation; the class implements `caesura.runtime.engine.EngineSession`."""

    def __init__(self, host: Host, spec: SessionSpec, log: SessionLog | None = None) -> None:
        self._host = host
        self._language = host.language
        self._log = TurnLog(log)
        self._spec = spec
        self._turns = TurnMaker(host.language, spec)
        self._conversation = Conversation(host.rendering, spec)
        self._reader: TurnReader | None = None
        self._token_text: TokenText | ReplayedText | None = None
        recorded = self._log.takes_facts
        self._request = SurvivingRequest(host, spec, self._turns, outlives_pauses=recorded)
        self._in_line = False
        self._in_turn = False
        self._closed = False
        self._holds = False
        """Whether the request of the next turn waits at its end."""
        self._sent: SentTurn | None = None
        """The turn under way, while the engine decodes it."""
        self._ends = host.language.ends
        self._logprobs: ShownLogprobs | None = None
        self._media = NO_MEDIA
        self.tokens: list[int] = []
        """All tokens of the context, including the last sampled one."""
        self.sent_at: float | None = None
        """When the latest turn's tokens were handed to vLLM, a Unix time; None before."""

    @property
    def context_tokens(self) -> int:
        """The tokens of the context, those of the latest turn too."""
        return len(self.tokens)

    @property
    def request_id(self) -> str:
        """The id of the latest request, or of the first one before that is sent.

        The engine's records may append a `-` and more to it.
        """
        return self._request.request_id

    @property
    def trace_headers(self) -> Callable[[], Mapping[str, str]] | None:
        """Returns the W3C trace context for the next request, if vLLM makes spans."""
        return self._request.trace_headers

    @trace_headers.setter
    def trace_headers(self, headers: Callable[[], Mapping[str, str]] | None) -> None:
        self._request.trace_headers = headers

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
            sampling = self._host.sampling.bounded(sampling or self._spec.sampling)
            turn = await self._open(messages, sampling)
            self._sent = turn.sent
            while turn.outcome is None:
                for event in self._events(turn, await self._next(turn)):
                    yield event
            for event in await self._last_events(turn, turn.outcome):
                yield event
            self._sent = None
            yield await self._ended(turn, turn.outcome)
            done = True
        finally:
            self._in_turn, self._sent = False, None
            if not done:
                # The engine's progress is unknown, so this session cannot continue.
                await self.close()

    def hold(self) -> None:
        """Let the request of the next turn wait at its end; see `EngineSession.hold`."""
        self._holds = True

    async def remember(self, answer: Sequence[Message]) -> None:
        """Keep the tokens for a session that follows; see `EngineSession.remember`."""
        reader = self._reader
        if reader is None or self._in_turn or self._in_line or self._conversation.held_results:
            return
        if has_media(self._conversation.history):
            return  # the tokens alone do not tell the pictures, also those in tools' results
        if self._spec.prefill or self.tokens[-1] in self._ends - self._language.ends:
            return  # the answer lacks the begin that the caller wrote, or its last token
        made = sum(not call.inline for call in reader.calls)
        # The tokens must hold no call that the follow-up will not answer, and no hidden text.
        if made == len(answer[-1].get("tool_calls") or ()) and reader.is_whole:
            messages = (*self._conversation.asked, *answer)
            await self._host.rendering.splicer.remember(messages, self._spec, self.tokens)

    async def cut(self, tokens: int) -> bool:
        """Cut the turn under way at the next safe place; see `EngineSession.cut`."""
        sent = self._sent
        if sent is None or not self._request.is_live or self._closed or not self._turns.pausing:
            return False
        if sent.sampling.text is not None or sent.sampling.calls is not None:
            return False  # a grammar leads the turn to its end
        sent.holds = True  # what is not cut ends by itself, and then waits too
        try:
            return await self._request.cut(tokens)
        except (UsageError, EngineFailed) as error:
            # The turn ends by itself. If the engine is dead, it reports that.
            logger.debug("a turn is not cut: %s", error)
            return False

    async def expect_pause(self, seconds: float) -> None:
        """Tell the scheduler how long the pause will last; see `EngineSession.expect_pause`."""
        if not self._request.is_live or self._in_turn or self._closed:
            return
        try:
            await self._request.expect_pause(seconds)
        except (UsageError, EngineFailed) as error:
            # The forecast is only advice. If the engine is dead, the next turn reports it.
            logger.debug("the forecast of a pause was not taken: %s", error)

    async def close(self, *, follow_up: bool = False) -> None:
        """End the session in any state and free its blocks and its slot.

        With `follow_up`, a request that is paused at a call is finished instead of aborted. The
        scheduler then keeps its KV cache for the request that brings the result.
        """
        self._closed = True
        await self._request.close(stopped=follow_up and not self._in_turn)

    # -- what goes in ----------------------------------------------------------------------------

    async def _open(self, messages: Sequence[Message], sampling: Sampling) -> _OpenTurn:
        """Begin a turn with these messages: send it, or replay it if the log has it."""
        logged = self._log.next()
        said = Said(self._reader, self._in_line, self.tokens)
        if logged is None:
            appended = await self._conversation.append(messages, said, sampling)
        else:
            appended = self._conversation.append_logged(messages, said, logged)
        if self._closed:  # closed while rendering: a request sent now would never be freed
            raise UsageError("the session is closed; open another")
        sent = self._begun(appended, sampling)
        if logged is None:
            await self._send(appended, sent)
        else:
            self._logprobs, self.tokens = None, sent.tokens
        reader = self._reader
        assert reader is not None
        turn = _OpenTurn(sent, appended, reader, len(reader.calls), reader.size_bytes, logged)
        if logged is not None:
            pausing = self._turns.pausing
            outcome = outcome_of(logged, sent, self._ends, self._language, pausing)
            turn.replay = logged_pieces(logged, outcome)
        return turn

    def _begun(self, appended: Appended, sampling: Sampling) -> SentTurn:
        """Return the turn that begins with these tokens, prepared to be sent."""
        context = [] if appended.replaces else self.tokens
        tokens = [*context, *appended.tokens]
        thinking = ""
        matters = self._turns.watched or self._language.thinking or sampling.text is not None
        if matters and appended.turn == "fresh":
            thinking = self._host.rendering.renderer.thinking(appended.tokens)
        media = appended.media if appended.replaces else self._media
        shown = sampling.logprobs
        if shown is None and self._log.takes_facts:
            sampling = replace(sampling, logprobs=0)  # those of the sampled tokens alone
        about = (appended.turn, sampling, thinking, media, self._holds)
        turn, self._holds = SentTurn(tokens, len(tokens), *about), False
        self._request.prepare(turn)
        self._media = media
        self._ends = self._language.ends | frozenset(sampling.stop_token_ids)
        self._logprobs = ShownLogprobs.of(shown, self._language.bytes_of)
        if appended.turn == "fresh":
            self._reader = self._turns.reader(sampling, thinking, self._log.new_ids())
            self._token_text = self._language.token_text()
        return turn

    async def _send(self, appended: Appended, turn: SentTurn) -> None:
        """Send the turn's tokens to the engine, to the live request or as a new one."""
        if self._log.writes:
            about = (appended.turn, appended.replaces, appended.spelled, appended.follow_up)
            media = has_media(self._conversation.history)
            self._log.begin(LoggedTurn(appended.tokens, *about, has_media=media))
        pushed = None if appended.replaces else [*self.tokens[-1:], *appended.tokens]
        await self._request.send(turn, pushed)
        self.sent_at = time.time()
        self.tokens = turn.tokens

    # -- what comes out --------------------------------------------------------------------------

    async def _next(self, turn: _OpenTurn) -> TurnPiece:
        """Return the next piece: what the log holds of the turn, then what the engine decodes."""
        sent = turn.sent
        if turn.logged is not None:
            if (len(sent.tokens) - sent.prompt_tokens) % REPLAY_TOKENS == 0:
                await asyncio.sleep(0)  # others stream meanwhile
            if (piece := next(turn.replay, None)) is not None:
                return piece
            turn.logged = None
            self._request.prepare(sent)
            await self._request.send(sent)
            self.sent_at = time.time()
        output = await self._request.next(sent)
        if not sent.resent:  # later requests find their own tokens, if any
            sent.cached_tokens = output.num_cached_tokens or 0
        facts = self._request.facts(output) if self._log.takes_facts else None
        return piece_of(output, sent.cached_tokens, facts)

    def _events(self, turn: _OpenTurn, piece: TurnPiece) -> Iterable[Event]:
        """Return the events of a piece; the last piece has the turn's outcome."""
        turn.outcome = outcome = piece.outcome
        events = turn.reader.push(
            self._take(turn.sent, piece),
            piece.token_ids,
            cut=outcome is not None and outcome.finish == "length",
            ended=outcome is not None,
            at_stop=outcome is not None and outcome.verdict == Verdict.STOP.value,
        )
        return events if self._logprobs is None else map(self._with_logprobs, events)

    async def _last_events(self, turn: _OpenTurn, outcome: TurnOutcome) -> Iterable[Event]:
        """Return the events that the reader has held back, unless the turn goes on in line."""
        reader, threads = turn.reader, self._host.rendering.threads
        self._in_line = outcome.paused and reader.called_in_line(turn.calls_before)
        if self._in_line:
            return ()
        # A large turn that is read only now has a thread.
        events = await threads.run_sized(lambda: [*reader.end()], reader.held_characters)
        return map(self._with_logprobs, events)

    async def _ended(self, turn: _OpenTurn, outcome: TurnOutcome) -> TurnEnded:
        """End the turn, and its request unless that waits for results."""
        reader, appended = turn.reader, turn.appended
        reason: Literal["call", "stop", "length", "cut"] = outcome.finish
        if reason == "stop" and (
            len(reader.calls) > turn.calls_before or self._conversation.held_results
        ):
            reason = "call"
        elif outcome.verdict == Verdict.CUT.value:
            reason = "cut"
        if not outcome.paused or (reason != "call" and not turn.sent.holds):
            self._in_line = False
            await self._request.end()
        decoded = len(turn.sent.sampled)
        return TurnEnded(
            reason=reason,
            prompt_tokens=len(appended.tokens),
            completion_tokens=decoded,
            cached_tokens=outcome.cached_tokens,
            resume=outcome.resume,
            follow_up=appended.follow_up,
            stop_text=reader.stop_text if reason == "stop" else None,
            reasoning_tokens=self._reasoning_tokens(reader, decoded, turn.begin),
            spelled_tokens=appended.spelled,
        )

    def _reasoning_tokens(self, reader: TurnReader, decoded: int, begin: int) -> int:
        """Return how many of the last `decoded` tokens are reasoning; they begin at byte `begin`.

        A token that the tokenizer's decoder writes with other bytes shifts the count by as many.
        """
        if not reader.reasoning:
            return 0
        last = self.tokens[len(self.tokens) - decoded :]
        sizes = (len(self._language.bytes_of(token)) for token in last)
        return reader.reasoning_tokens(sizes, begin)

    def _take(self, turn: SentTurn, piece: TurnPiece) -> str:
        """Record decoded tokens and return their text, without that of a turn's end."""
        if self._token_text is None and (turn.resent or piece.text is None):
            self._token_text = self._text_behind(turn)
        token_ids, text = piece.token_ids, piece.text or ""
        turn.tokens.extend(token_ids)
        if self._token_text is not None:
            text = self._token_text.push(token_ids)
        if self._logprobs is not None:
            self._logprobs.push(token_ids, piece.logprobs)
        if not piece.is_logged:
            self._log.sampled(piece)
        if piece.outcome is not None and token_ids and token_ids[-1] in self._ends:
            text = text.removesuffix(self._language.text_of(token_ids[-1]))
        return text

    def _text_behind(self, turn: SentTurn) -> ReplayedText:
        """Return a decoder that stands where that of the engine which died stood."""
        prompt = turn.tokens[: turn.prompt_tokens]
        text = ReplayedText(self._language.tokenizer, prompt, turn.params)
        text.push(turn.sampled)
        return text

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
