"""The one seam between the runtime and whatever decodes: `Engine` and `EngineSession`.

`caesura.scheduler.vllm.client.engine.VllmEngine` is the real one, and its public peer in memory is
`caesura.runtime.testing.ScriptedEngine`. Both speak messages in and events out; tokens stay behind
the seam, so that a resume is token-exact by construction: nothing above it could re-render or
re-tokenise.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from caesura.intercept.calls.events import Event
from caesura.scheduler.messages import Message, Sampling, SessionSpec


class EngineSession(Protocol):
    """One conversation inside the engine. Not safe for concurrent turns."""

    def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Append `messages` and decode until the turn ends; the last event is `TurnEnded`.

        The first turn carries the whole history. After a turn that ended with reason `call`,
        `messages` are the tool messages that answer every call of it, in call order (none, where
        calls that were answered in mid sentence are all it has); after `stop` or `length` they
        start the next turn of the conversation. `sampling` replaces the session's for this turn.
        Close the iterator to abandon a turn: that ends the session.

        Raises `ContextOverflow` if the messages do not fit the model's context window, and
        `EngineFailed` if the engine died.
        """
        ...

    async def close(self, *, follow_up: bool = False) -> None:
        """End the session in whatever state it is and free all that it holds. Idempotent.

        With `follow_up` its last turn ended with a call that another session will answer, with
        the same history and the result: the engine may keep the KV cache for that one.
        """
        ...


class Engine(Protocol):
    """A model that decodes for many sessions at once."""

    @property
    def model(self) -> str:
        """Name under which the model is served."""
        ...

    @property
    def context_tokens(self) -> int:
        """The model's context window in tokens."""
        ...

    def count_tokens(self, text: str) -> int:
        """How many tokens the text has for this model, by itself; callable from any thread."""
        ...

    def open(self, spec: SessionSpec) -> EngineSession:
        """Open a session; nothing is sent to the engine before its first turn."""
        ...

    async def check_health(self) -> None:
        """Raise `EngineFailed` if the engine cannot decode any more."""
        ...

    async def close(self) -> None:
        """Stop the engine and free what it holds. Idempotent."""
        ...
