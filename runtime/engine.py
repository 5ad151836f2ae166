"""The interface between the runtime and an inference engine: `Engine` and `EngineSession`.

`caesura.scheduler.vllm.client.engine.VllmEngine` implements it with vLLM, and
`caesura.runtime.testing.ScriptedEngine` in memory. Messages go in and events come out. Tokens stay
inside the engine: no caller can render or tokenise a history again, so a resume is token-exact.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from caesura.intercept.calls.events import Event
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.scheduler.messages import InputGrammar, MediaRules, Message, Sampling, SessionSpec
from caesura.scheduler.programs import Origin
from caesura.scheduler.session_log import SessionLog

if TYPE_CHECKING:
    from caesura.scheduler.calibration import Calibration
    from caesura.scheduler.histories import History
    from caesura.scheduler.revival import Revival
    from caesura.scheduler.vllm_server import VllmServer


class EngineSession(Protocol):
    """One conversation inside the engine. Not safe for concurrent turns."""

    def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Append `messages` and decode until the turn ends; the last event is `TurnEnded`.

        The first turn carries the whole history. After a turn that ended with reason `call`,
        `messages` are the tool messages that answer all its calls, in call order. The list is
        empty if all its calls were answered in mid sentence. Further messages may follow. After
        any other reason, `messages` start the next turn of the conversation. `sampling` replaces
        the session's for this turn. Closing the iterator abandons the turn and ends the session.

        Raises `ContextOverflow` if the messages do not fit the model's context window, and
        `EngineFailed` if the engine died. Raises `RequestFailed` if the engine lives and ended the
        request, or aborted it within the turn; a session that had paused goes on instead.
        """
        ...

    def hold(self) -> None:
        """Let the request of the next turn wait at its end for more messages, as at a call.

        A turn that ends with `stop` then keeps its KV cache for the next one. An engine that holds
        no requests ignores it.
        """
        ...

    async def cut(self, tokens: int) -> bool:
        """Cut the turn under way at the next safe place, within so many tokens of text.

        The turn then ends with reason `cut`, and its request waits for messages. A safe place ends
        a line or a sentence, outside thinking and calls. Returns False where the turn is not cut
        but ends by itself: where none is under way, a grammar leads it, or the engine cannot.
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


class SessionAround:
    """What stands around an engine's session; it passes on what it does not change."""

    def __init__(self, session: EngineSession) -> None:
        """Create it around a session, whose further properties are there if the engine has them."""
        self._session = session

    @property
    def request_id(self) -> str | None:
        """The id of the latest request, if the engine has ids."""
        return getattr(self._session, "request_id", None)

    @property
    def context_tokens(self) -> int | None:
        """How many tokens the context behind the latest turn has, if the engine tells it."""
        return getattr(self._session, "context_tokens", None)

    @property
    def tokens(self) -> Sequence[int] | None:
        """The tokens of that context, if the engine tells them."""
        return getattr(self._session, "tokens", None)

    @property
    def sent_at(self) -> float | None:
        """When the latest turn was sent, if the engine tells it."""
        return getattr(self._session, "sent_at", None)

    @property
    def trace_headers(self) -> Callable[[], Mapping[str, str]] | None:
        """Returns the trace context for the next request, if the engine makes spans."""
        return getattr(self._session, "trace_headers", None)

    @trace_headers.setter
    def trace_headers(self, headers: Callable[[], Mapping[str, str]] | None) -> None:
        if hasattr(self._session, "trace_headers"):
            self._session.trace_headers = headers

    def hold(self) -> None:
        """Let the next turn's request wait at its end; see `EngineSession.hold`."""
        self._session.hold()

    async def cut(self, tokens: int) -> bool:
        """Cut the turn under way; see `EngineSession.cut`."""
        return await self._session.cut(tokens)

    async def remember(self, answer: Sequence[Message]) -> None:
        """Let a later session continue from the tokens; see `EngineSession.remember`."""
        await self._session.remember(answer)

    async def expect_pause(self, seconds: float) -> None:
        """Pass the forecast on; see `EngineSession.expect_pause`."""
        await self._session.expect_pause(seconds)

    async def close(self, *, follow_up: bool = False) -> None:
        """Close the session; see `EngineSession.close`."""
        await self._session.close(follow_up=follow_up)


class Engine(Protocol):
    """A model that decodes for many sessions at once.

    An engine that belongs to one event loop has it as `loop`. Agents on other loops and threads
    then send it their work.
    """

    @property
    def model(self) -> str:
        """The name under which the model is served, the first of its names."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """All names under which the model is served."""
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

    def check_input(self, grammar: InputGrammar) -> None:
        """Raise `UsageError` if the text of a call cannot be made to follow a grammar."""
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

    async def history(self, messages: Sequence[Message], spec: SessionSpec) -> "History":
        """Return what messages, the tools and the template's variables tell the model, as digests.

        Two histories with equal digests are one prompt, however a client has spelled them.
        """
        ...

    async def end_session(self, origin: Origin) -> None:
        """Free what is kept only for later requests of a session, and of those that it started.

        `origin` names the session and its tenant. Requests that are under way go on. An engine
        that is dead keeps nothing.
        """
        ...

    async def check_health(self) -> None:
        """Raise `EngineFailed` if the engine can no longer decode."""
        ...

    @property
    def revival(self) -> "Revival":
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

    @property
    def backend(self) -> "Backend":
        """What its operator sees of it: its measurements, its records, its process."""
        ...


Take = Callable[[int, list[dict[str, Any]]], None]
"""Takes an engine's data-parallel rank and records of it, oldest first; it must not change them."""


class Backend(Protocol):
    """What runs an engine, as its operator sees it; `NoBackend` is that of engines in memory."""

    @property
    def calibration(self) -> "Calibration | None":
        """The calibration that the scheduler uses, or None if there is none."""
        ...

    async def measure(self, quick: bool, progress: Callable[[float, str], None]) -> "Calibration":
        """Measure the idle engine; `progress` gets the share done, from 0 to 1, and the phase.

        Raises `UsageError` for an engine that cannot be measured, and `EngineFailed`.
        """
        ...

    async def adopt(self, calibration: "Calibration") -> None:
        """Make the scheduler use a calibration."""
        ...

    def updating(self, version: str, *, keeps_kv: bool) -> AbstractAsyncContextManager[Any]:
        """Freeze all requests while the context lasts, in which the caller changes the weights.

        It yields vLLM's client. Behind it the weights have the label `version`, and all requests
        go on with them. With `keeps_kv` theirs stays, of the earlier weights; otherwise it is
        dropped and computed again. If the caller raises, the engine stays frozen.
        """
        ...

    def listen(self, take: Take) -> Callable[[], None]:
        """Call `take` with the engine's records on the event loop; return what stops that."""
        ...

    async def sizes(self) -> list[dict[str, Any]]:
        """Return the sizes of each data-parallel engine's KV cache and steps, by rank.

        The list is empty for an engine that sends no records. Raises `EngineFailed`.
        """
        ...

    async def facts(self) -> dict[str, Any]:
        """Return what a recording holds of the engine, besides its model. Raises `EngineFailed`."""
        ...

    async def answer(self) -> None:
        """Return once the process has answered, between two steps; it may be busy till then."""
        ...

    def cause_of_death(self) -> str:
        """Return how the processes of a dead engine ended, or an empty text if not known."""
        ...

    def server(self) -> "AbstractAsyncContextManager[VllmServer | None]":
        """Yield vLLM's own HTTP application on the engine, or None if it has none.

        Await its `renew` after the engine was started again. Raises `UsageError` for options that
        vLLM's server refuses.
        """
        ...


@dataclass(frozen=True, slots=True, weakref_slot=True)
class NoBackend:
    """The backend of an engine that is an object in memory: there is nothing to see."""

    model: str
    kind: str
    """The name of the engine's class."""

    @property
    def calibration(self) -> "Calibration | None":
        """Raises `UsageError`, as all that needs vLLM does."""
        raise self._error

    async def measure(self, quick: bool, progress: Callable[[float, str], None]) -> "Calibration":
        """Raise `UsageError`."""
        raise self._error

    async def adopt(self, calibration: "Calibration") -> None:
        """Raise `UsageError`."""
        raise self._error

    def updating(self, version: str, *, keeps_kv: bool) -> AbstractAsyncContextManager[Any]:
        """Raise `UsageError`."""
        raise self._error

    def listen(self, take: Take) -> Callable[[], None]:
        """Return what does nothing: there are no records."""
        return lambda: None

    async def sizes(self) -> list[dict[str, Any]]:
        """Return no sizes."""
        return []

    async def facts(self) -> dict[str, Any]:
        """Return no facts."""
        return {}

    async def answer(self) -> None:
        """Return at once."""

    def cause_of_death(self) -> str:
        """Return that nothing is known."""
        return ""

    def server(self) -> "AbstractAsyncContextManager[VllmServer | None]":
        """Yield None."""
        return nullcontext()

    @property
    def _error(self) -> UsageError:
        return UsageError(
            f"{self.model} does not run in vLLM but in {self.kind}: only vLLM's engine can be"
            " measured, and only its weights can be changed"
        )
