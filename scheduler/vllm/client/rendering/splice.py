"""Splicing: the prompt of a follow-up from the tokens of the answer that it follows.

A template may write an earlier answer with other tokens than the model sampled: it drops the
thinking, spells JSON differently or trims spaces. All KV behind that place would be recomputed.
Here the tokens of the earlier answer stay as they are, and the template writes only what is new.
"""

from collections.abc import Callable, Sequence
from functools import partial

from caesura.intercept.calls.events import FollowUpReport
from caesura.scheduler.answers import Answers, FollowUp, Missed
from caesura.scheduler.errors import ContextOverflow, UsageError
from caesura.scheduler.histories import Histories, History, length_up_to_answer
from caesura.scheduler.messages import Message, Sampling, SessionSpec, has_media
from caesura.scheduler.vllm.client.rendering.render import Behind, Continuation, Renderer
from caesura.scheduler.vllm.client.rendering.roles import leading_system
from caesura.scheduler.vllm.client.rendering.threads import MAX_INLINE_CHARACTERS, RenderThreads

MIN_FREE_SHARE = 0.25
"""The share of the context window that splicing leaves free, unless the turn asks for less.

A rendered history may be shorter, since the template drops what splicing keeps.
"""

MAX_INLINE_MESSAGES = 50
"""The longest history that is read in the event loop."""
READ_IN_TIME = 32
"""How many characters of a message are read in the time in which one is rendered."""
Write = Callable[[Continuation], Behind | None]
"""Writes what follows a turn, or returns None if it cannot say. Raises `UsageError`."""


class Splicer:
    """Remembers the tokens of answers and continues from them."""

    def __init__(
        self,
        renderer: Renderer,
        threads: RenderThreads,
        context_tokens: int,
        answers: Answers | None,
    ) -> None:
        """Create it; without `answers` nothing is spliced."""
        self._renderer = renderer
        self._threads = threads
        self._context_tokens = context_tokens
        self._answers = answers
        self._histories = Histories() if answers is None else Histories(renderer.reads)

    @property
    def enabled(self) -> bool:
        """Whether follow-ups are spliced."""
        return self._answers is not None

    async def remember(
        self, messages: Sequence[Message], spec: SessionSpec, tokens: Sequence[int]
    ) -> None:
        """Keep the tokens of a conversation that ends with an answer, unless it has media."""
        if self._answers is not None and not has_media(messages):
            self._answers.remember(await self.history(messages, spec), tokens)

    async def follow_up(
        self,
        messages: Sequence[Message],
        spec: SessionSpec,
        sampling: Sampling,
        write: Write | None = None,
    ) -> FollowUp | None:
        """Return the prompt of a conversation, or None if nothing in it follows an answer.

        `sampling` is that of the turn to come. `write` writes what is new instead of the chat
        template. Raises `ContextOverflow` for new messages that cannot fit into the context window.
        """
        length = length_up_to_answer(messages)
        if length is None:
            return None
        if self._answers is None:
            return _rendered("off")
        if has_media(messages):
            return _rendered("media")
        found = self._answers.find(await self.history(messages[:length], spec))
        if isinstance(found, Missed):
            return _rendered(found.why, found.field)
        turn, new = messages[length - 1], messages[length:]
        system = leading_system(messages[:length])
        calls = _count_calls(messages[: length - 1])
        after = Continuation(turn, new, spec.tools, found[-1], system, spec.template, calls)
        try:
            suffix = await self._suffix(write or self._behind, after)
        except ContextOverflow:
            raise
        except UsageError:
            suffix = None  # the template may accept the whole history, or say what is wrong in it
        if suffix is None:
            return _rendered("template")
        tokens = suffix.joined(found)
        if not self._has_room(len(tokens), sampling.max_tokens):
            return _rendered("room")
        report = FollowUpReport("spliced", "unchanged", len(tokens) - len(suffix.tokens))
        return FollowUp(report, tokens)

    async def append(
        self,
        turn: Message,
        messages: Sequence[Message],
        spec: SessionSpec,
        tokens: Sequence[int],
        sampling: Sampling,
        earlier: Sequence[Message] = (),
    ) -> Behind | None:
        """Return what follows `tokens`, which end with the model's turn `turn`.

        `earlier` are the messages before that turn.
        The result is None if all messages have to be rendered again. Raises `UsageError` and
        `ContextOverflow` as `Renderer.bridge`.
        """
        about = (turn, messages, spec.tools, tokens[-1], (), spec.template)
        after = Continuation(*about, _count_calls(earlier))
        suffix = await self._suffix(self._bridged, after)
        if suffix is not None or self._answers is None:
            return suffix
        suffix = await self._suffix(self._renderer.splice, after)
        if suffix is None or not self._has_room(len(suffix.joined(tokens)), sampling.max_tokens):
            return None
        return suffix

    async def history(self, messages: Sequence[Message], spec: SessionSpec) -> History:
        """Return what the messages told the model; a thread reads many of them."""
        read = partial(self._histories.of, messages, spec)
        return await self._threads.run_sized(read, _size(messages))

    def _behind(self, after: Continuation) -> Behind | None:
        """Return what follows a turn, or None if the template cannot say."""
        return self._bridged(after) or self._renderer.splice(after)

    def _bridged(self, after: Continuation) -> Behind | None:
        exact = self._renderer.bridge(after)
        return None if exact is None else Behind(exact)

    async def _suffix(self, render: Write, after: Continuation) -> Behind | None:
        about = (after.turn, after.messages, after.tools, after.system)
        return await self._threads.run(partial(render, after), *about)

    def _has_room(self, tokens: int, max_tokens: int | None) -> bool:
        wanted = int(self._context_tokens * MIN_FREE_SHARE)
        return self._context_tokens - tokens >= min(wanted, max_tokens or wanted)


def _size(messages: Sequence[Message]) -> int:
    """Return how much work it is to read messages, in characters that are rendered."""
    if len(messages) > MAX_INLINE_MESSAGES or has_media(messages):
        return MAX_INLINE_CHARACTERS + 1
    return sum(len(message.get("content") or "") for message in messages) // READ_IN_TIME


def _count_calls(messages: Sequence[Message]) -> int:
    """Return the number of calls in the messages."""
    return sum(len(message.get("tool_calls") or ()) for message in messages)


def _rendered(why: str, field: str = "") -> FollowUp:
    return FollowUp(FollowUpReport("rendered", why, field=field))
