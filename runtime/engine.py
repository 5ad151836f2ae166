"""The interface between the runtime and an inference engine: `Engine` and `EngineSession`.

`caesura.scheduler.vllm.client.engine.VllmEngine` implements it with vLLM, and
`caesura.runtime.testing.ScriptedEngine` in memory. Messages go in and events come out. Tokens stay
inside the engine: no caller can render or tokenise a history again, so a resume is token-exact.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from caesura.intercept.calls.events import Event
from caesura.runtime.errors import EngineFailed
from caesura.scheduler.answers import FollowUp
from caesura.scheduler.messages import MediaRules, Message, Sampling, SessionSpec
from caesura.scheduler.revival import Revival
from caesura.scheduler.session_log import SessionLog

if TYPE_CHECKING:
    from starlette.types import ASGIApp


class EngineSession(Protocol):
    """One conversation inside the engine. Not safe for concurrent turns."""

    def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Append `messages` and decode until the turn ends; the last event is `TurnEnded`.

        The first turn carries the whole history. After a turn that ended with reason `call`,
        `messages` are the tool messages that answer all its calls, in call order. The list is
        empty if all its calls were answered in mid sentence. After `stop` or `length`, `messages`
        start the next turn of the conversation. `sampling` replaces the session's for this turn.
        Closing the iterator abandons the turn and ends the session.

        Raises `ContextOverflow` if the messages do not fit the model's context window, and
        `EngineFailed` if the engine died. Raises `RequestFailed` if the engine lives and ended the
        request, or aborted it within the turn; a session that had paused goes on instead.
        """
        ...

    async def remember(self, answer: Sequence[Message]) -> None:
        """Let a later session continue from the tokens of this one, whose turn has ended.

        `answer` is what a later history holds for all that this session added to the messages of
        its first turn; the last message is the assistant's. A session of the same tools and owner
        continues if its first turn begins with exactly these messages. Otherwise, and for an
        answer that the engine cannot continue, its messages are rendered as always. `TurnEnded`
        reports which it was.
        """
        ...

    async def expect_pause(self, seconds: float) -> None:
        """Say that the calls of the paused turn are expected to take `seconds` more.

        The engine may handle the paused KV cache by it. A session that is not paused, and an
        engine that takes no forecasts, ignore it.
        """
        ...

    async def close(self, *, follow_up: bool = False) -> None:
        """End the session in any state and free its resources. Idempotent.

        `follow_up` says that another session will answer the last turn's calls, with the same
        history and the results. The engine may keep the KV cache for that session.
        """
        ...


class Engine(Protocol):
    """A model that decodes for many sessions at once."""

    @property
    def model(self) -> str:
        """The name under which the model is served."""
        ...

    @property
    def adapters(self) -> Collection[str]:
        """The names of the LoRA adapters that a session may name, at this moment."""
        ...

    @property
    def context_tokens(self) -> int:
        """The model's context window in tokens."""
        ...

    @property
    def default_sampling(self) -> Sampling:
        """The model's own settings, which hold where a request has none."""
        ...

    @property
    def max_answer_tokens(self) -> int | None:
        """The operator's bound on the tokens of an answer, over all turns of its run, or None."""
        ...

    @property
    def media_rules(self) -> MediaRules:
        """The pictures, sounds and videos that prompts may hold, as data URLs."""
        ...

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of the text alone; any thread may call this."""
        ...

    async def count_prompt(self, spec: SessionSpec, messages: Sequence[Message]) -> int:
        """Return the number of tokens of the prompt that a new session's first turn would have.

        Raises `ContextOverflow` for a text that is certainly longer than the context window.
        """
        ...

    def open(self, spec: SessionSpec, log: SessionLog | None = None) -> EngineSession:
        """Return a new session, which sends nothing to the engine before its first turn.

        The session writes its turns to `log`. It first replays the turns that the log holds, with
        the same events and the same ids of calls; the caller sends the same messages again. Where
        the log ends, also within a turn, the session goes on with the engine.
        """
        ...

    async def check_health(self) -> None:
        """Raise `EngineFailed` if the engine can no longer decode."""
        ...

    @property
    def revival(self) -> Revival:
        """Where sessions wait for a restart; who supervises the engine says so there."""
        ...

    async def restart(self) -> None:
        """Start the engine's process anew: the same model, configuration and calibration.

        The old process is ended first, in whatever state it is. Sessions survive: a turn that was
        decoding goes on, and a paused one resumes. Raises `EngineFailed` if the engine does not
        start, after which this may be called again, and if it is not ours to start.
        """
        ...

    async def revived(self, error: EngineFailed) -> None:
        """Wait until the engine lives again after `error`.

        Raises `error` at once if nobody supervises the engine, and the supervisor's error once it
        has given up.
        """
        ...

    async def close(self) -> None:
        """Stop the engine and free its resources. Idempotent."""
        ...


class TokenTap(Protocol):
    """The tokens of a request that vLLM's server answers."""

    tokens: list[int]
    """The prompt, and what the model sampled."""
    requests: int
    """How many requests were sent to the engine; with more than one, `tokens` are mixed."""


class ServerSplicing(Protocol):
    """Splicing for requests that vLLM's own server answers."""

    async def follow_up(
        self, messages: Sequence[Message], spec: SessionSpec, sampling: Sampling
    ) -> FollowUp | None:
        """Return the prompt of a conversation, or None if nothing in it follows an answer."""
        ...

    async def remember(
        self, messages: Sequence[Message], spec: SessionSpec, tokens: Sequence[int]
    ) -> None:
        """Keep the tokens of a conversation; the last of the messages is its answer."""
        ...

    def tapped(self) -> AbstractContextManager[TokenTap]:
        """Follow the tokens of the request that the context sends to vLLM's server."""
        ...


@dataclass(frozen=True, slots=True)
class VllmServer:
    """vLLM's own HTTP application on an engine."""

    app: "ASGIApp"
    max_characters: int | None
    """A text of more characters does not fit the context window; None if that is not known."""
    splicing: ServerSplicing | None = None
    """None if the follow-ups of chat completions are always rendered."""
    parses_alone: bool = False
    """Whether it alone can read the model's answers: calls of another format, or thinking."""
    listens: bool = False
    """Whether it is the server that listens, and answers for models, health and metrics."""
    renew: Callable[[], Awaitable[None]] | None = None
    """Builds the application anew on an engine that was started again."""
    salted: Callable[[Callable[[str | None], str]], AbstractContextManager[None]] | None = None
    """Makes the salts of requests that a context sends, from the salts that their clients chose."""
    tapped: Callable[[], AbstractContextManager[TokenTap]] | None = None
    """Follows the tokens of the requests that a context sends."""
