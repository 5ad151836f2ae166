"""What goes into a session: its history of messages, and the tokens that they become."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from caesura.intercept.calls.events import FollowUpReport, TurnKind
from caesura.scheduler.errors import EngineFailed, UsageError
from caesura.scheduler.messages import Message, Sampling, SessionSpec, has_media, text_of
from caesura.scheduler.session_log import LoggedTurn
from caesura.scheduler.vllm.client.parsing.reader import TurnReader
from caesura.scheduler.vllm.client.rendering.media import NO_MEDIA, Media, MediaRenderer
from caesura.scheduler.vllm.client.rendering.render import Renderer
from caesura.scheduler.vllm.client.rendering.splice import Splicer
from caesura.scheduler.vllm.client.rendering.threads import RenderThreads

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Appended:
    """The tokens that a turn appends; with `replaces` they are the whole context."""

    tokens: list[int]
    turn: TurnKind = "fresh"
    replaces: bool = False
    follow_up: FollowUpReport | None = None
    media: Media = NO_MEDIA
    spelled: int = 0


@dataclass(frozen=True, slots=True)
class Said:
    """What the session holds of the model before the messages come."""

    reader: TurnReader | None
    """The reader of the last turn; None before the first."""
    in_line: bool
    """Whether that turn waits, within its text, for the result of a call."""
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class Rendering:
    """What makes tokens of messages, for all sessions of an engine."""

    renderer: Renderer
    media: MediaRenderer
    splicer: Splicer
    threads: RenderThreads

    async def prompt(
        self, messages: Sequence[Message], spec: SessionSpec, prefill: bool
    ) -> tuple[list[int], Media]:
        """Return the tokens of a whole conversation, and its media; a thread renders a large one.

        With `prefill` the model continues the last message. Raises `UsageError` and
        `ContextOverflow` as `Renderer.prompt` does.
        """
        if has_media(messages):
            return await self.media.prompt(messages, spec.tools, spec.template, prefill)
        about = (messages, spec.tools)
        prompt = partial(self.renderer.prompt, *about, spec.template, prefill)
        return await self.threads.run(prompt, *about), NO_MEDIA


class Conversation:
    """The messages of one session. What it returns is to be sent to the engine."""

    def __init__(self, rendering: Rendering, spec: SessionSpec) -> None:
        self._rendering = rendering
        self._spec = spec
        self._prefill_done = False
        self.asked: tuple[Message, ...] = ()
        """The messages of the first turn."""
        self.history: list[Message] = []
        """All messages up to the last that was appended, the model's turns included."""
        self.held_results: list[Message] = []
        """Results of calls that are told the model after the turn, whose in-line call has ended."""

    async def append(self, messages: Sequence[Message], said: Said, sampling: Sampling) -> Appended:
        """Return the tokens of `messages` after the context; render in a thread if large."""
        count = partial(self._rendering.renderer.count_spelled, messages)
        spelled = await self._rendering.threads.run(count, messages)
        appended = await self._rendered(messages, said, sampling)
        return replace(appended, spelled=spelled) if spelled else appended

    def append_logged(
        self, messages: Sequence[Message], said: Said, logged: LoggedTurn
    ) -> Appended:
        """Return the tokens that a log has for `messages`; nothing is rendered again."""
        in_line = said.in_line and said.reader is not None
        if logged.has_media or in_line != (logged.kind != "fresh"):
            why = "pictures or sounds" if logged.has_media else "another conversation"
            raise EngineFailed(f"the session cannot go on from its log, which has {why}")
        if said.reader is None:
            self.asked = tuple(messages)
        elif in_line:
            self._answer_in_line(said.reader, messages)
            messages = ()
        else:
            messages = self._behind_turn(said.reader, messages)
        self.history.extend(messages)
        tokens, spelled = list(logged.appended), logged.spelled_tokens
        return Appended(tokens, logged.kind, logged.replaces, logged.follow_up, spelled=spelled)

    def _behind_turn(self, reader: TurnReader, messages: Sequence[Message]) -> list[Message]:
        """Add the turn that was read to the history; return the messages that follow it."""
        messages, self.held_results = [*self.held_results, *messages], []
        self._add_turn(reader.message())
        return messages

    async def _rendered(
        self, messages: Sequence[Message], said: Said, sampling: Sampling
    ) -> Appended:
        if said.reader is None:
            return await self._begin(messages, sampling)
        if said.in_line:
            return await self._append_in_line(said.reader, messages)
        messages, turn = self._behind_turn(said.reader, messages), said.reader.message()
        if has_media(messages):
            self.history.extend(messages)
            return await self._render()
        splicer, spec, earlier = self._rendering.splicer, self._spec, self.history[:-1]
        suffix = await splicer.append(turn, messages, spec, said.tokens, sampling, earlier)
        self.history.extend(messages)
        if suffix is not None and not suffix.instead:
            return Appended(suffix.tokens)
        if suffix is not None and not has_media(self.history):  # tokens do not tell the media
            return Appended(suffix.joined(said.tokens), replaces=True)
        logger.info("the chat template rewrites earlier turns: rendering all of them again")
        return await self._render()

    def _add_turn(self, turn: Message) -> None:
        """Append the model's turn to the history, behind the begin that the caller gave it."""
        if self._spec.prefill and not self._prefill_done:
            begin = self.history.pop()
            turn = {**turn, "content": f"{begin.get('content') or ''}{turn.get('content') or ''}"}
        self._prefill_done = True
        self.history.append(turn)

    async def _begin(self, messages: Sequence[Message], sampling: Sampling) -> Appended:
        """Return the tokens of the first messages, which may continue an earlier answer."""
        self.asked = tuple(messages)
        self.history.extend(messages)
        splicer, spec = self._rendering.splicer, self._spec
        follow_up = await splicer.follow_up(self.asked, spec, sampling)
        if follow_up is None:
            return await self._render()
        if follow_up.tokens is None:
            return await self._render(follow_up.report)
        return Appended(follow_up.tokens, replaces=True, follow_up=follow_up.report)

    async def _render(self, report: FollowUpReport | None = None) -> Appended:
        prefill = self._spec.prefill and not self._prefill_done
        tokens, media = await self._rendering.prompt(tuple(self.history), self._spec, prefill)
        return Appended(tokens, replaces=True, follow_up=report, media=media)

    async def _append_in_line(self, reader: TurnReader, messages: Sequence[Message]) -> Appended:
        """Return the tokens for an inline call's result; hold other results until the turn ends."""
        text = self._answer_in_line(reader, messages)
        encode = partial(self._rendering.renderer.encode_literal, text)
        return Appended(
            await self._rendering.threads.run(encode, text),
            "holding" if self.held_results else "begun",
        )

    def _answer_in_line(self, reader: TurnReader, messages: Sequence[Message]) -> str:
        """Return the text that answers the last call, which is in line; hold other results."""
        call_id = reader.calls[-1].call_id
        results = {str(message.get("tool_call_id")): message for message in messages}
        if call_id not in results:
            raise UsageError(f"the messages lack a result for the inline call {call_id}; add one")
        content = text_of(results.pop(call_id).get("content"))
        self.held_results.extend(results.values())
        text = reader.answer(content)
        reader.raw += text
        return text
