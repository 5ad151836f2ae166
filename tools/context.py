"""The context of a running call: its run, its trace, and how to report progress.

A tool that needs more than its arguments calls `current()`. Most tools do not. A dispatcher is
given a `ToolRun`: who has the calls made, what observes them, and what writes them down.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from caesura.tools.loops import on_loop
from caesura.tools.result import ResultLimits, ToolCall, ToolResult
from caesura.tools.run_view import NO_FACTS, RunFacts, Usage
from caesura.tools.run_view import Context as RunView
from caesura.tools.tool import Tool

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Resource:
    """One resource of a session, made or being made."""

    made: asyncio.Future[Any]
    close: Callable[[Any], Awaitable[object]]
    callers: int = 0
    """How many callers wait for the resource."""

    @property
    def failed(self) -> bool:
        """Whether the resource could not be made."""
        made = self.made
        return made.done() and (made.cancelled() or made.exception() is not None)

    @property
    def is_wanted_once(self) -> bool:
        """Whether the resource is still being made, for a single caller."""
        return not self.made.done() and self.callers == 1


class Scope:
    """Resources that tools keep for one session, such as a worker process; closed at its end."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        """The session's id, unique in this process and in files that outlive it."""
        self._kept: dict[str, _Resource] = {}
        self._dropping: set[asyncio.Future[None]] = set()
        self._closed = False

    async def keep(
        self,
        key: str,
        make: Callable[[], Awaitable[T]],
        close: Callable[[T], Awaitable[object]],
    ) -> T:
        """Return the resource under `key`, made by the first call and closed with the session.

        Concurrent callers share one attempt to make it. An attempt that fails, or is cancelled
        with the last of its callers, is forgotten. Raises what `make` raises, and RuntimeError
        once the session has ended.
        """
        if self._closed:
            raise RuntimeError("the session has ended")
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Resource(asyncio.ensure_future(make()), close)
        kept.callers += 1
        try:
            # Shielded: a call that times out must not cancel what another call waits for.
            return cast(T, await asyncio.shield(kept.made))
        except BaseException:
            if self._kept.get(key) is kept and (kept.failed or kept.is_wanted_once):
                await self.drop(key)
            raise
        finally:
            kept.callers -= 1

    async def drop(self, key: str) -> None:
        """Close the resource under `key`, if there is one. Raises what `close` raises."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            # Shielded: a resource that is half closed would be lost.
            await asyncio.shield(self._drop(kept))

    async def aclose(self) -> None:
        """Close all resources, even where one of them fails to close.

        Raises the first failure after that. May be called twice.
        """
        self._closed = True
        for key in list(self._kept):
            self._drop(self._kept.pop(key))
        ended = await asyncio.shield(asyncio.gather(*self._dropping, return_exceptions=True))
        failures = [each for each in ended if isinstance(each, BaseException)]
        if failures:
            raise failures[0]

    def _drop(self, kept: _Resource) -> asyncio.Future[None]:
        dropping = asyncio.ensure_future(_close(kept))
        self._dropping.add(dropping)
        dropping.add_done_callback(self._dropping.discard)
        return dropping


async def _close(kept: _Resource) -> None:
    """Cancel the attempt to make a resource, or close the resource that it made.

    Both happen on the event loop that made it, unless that has ended.
    """
    loop = kept.made.get_loop()
    if loop.is_running():
        await on_loop(loop, lambda: _close_here(kept))
    elif kept.made.done():
        await _close_here(kept)


async def _close_here(kept: _Resource) -> None:
    if not kept.made.done():
        kept.made.cancel()
        await asyncio.wait([kept.made])
    if not kept.failed:
        await kept.close(kept.made.result())


Fact = str | int | float | bool


class CallWatch(Protocol):
    """Observer of one call. Its methods run in the event loop and raise nothing."""

    @property
    def context(self) -> Context:
        """The context variables for the call's task, a copy of the caller's own."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers for requests that the tool sends, which identify the call."""
        ...

    def mark(self, name: str, facts: Mapping[str, Fact]) -> None:
        """Record an event of the call, such as a retry or a question to a person."""
        ...

    def ended(self, result: ToolResult | None) -> None:
        """Record the end of the call; None: the task that awaited it was cancelled. Called once."""
        ...


OnCall = Callable[[ToolCall], CallWatch]
"""Begins to observe a call that starts."""
OnReport = Callable[[ToolCall, str], None]
"""Receives a tool's progress reports, one line each."""
OnExpect = Callable[[ToolCall, float], None]
"""Receives a tool's forecasts, in seconds from now."""


class CallLog(Protocol):
    """The calls of a run that may be driven again after its process has died."""

    def result_of(self, call: ToolCall) -> ToolResult | None:
        """Return the result that the call had before, or None if it has to be made."""
        ...

    def notice(self, call: ToolCall, tool: Tool) -> str:
        """Return a sentence for a person if the call may have been made already, or an empty text.

        It is empty too for a tool that is safe to repeat.
        """
        ...

    async def settle(
        self, call: ToolCall, tool: Tool, arguments: dict[str, Any], notice: str
    ) -> str | None:
        """Decide about such a call: return None to make it, or the reason why it is not made."""
        ...

    async def starts(self, call: ToolCall, tool: Tool) -> None:
        """Write down that the tool runs now. It runs when this returns, and not if this raises."""
        ...

    def ended(self, result: ToolResult) -> None:
        """Write down the result of a call."""
        ...

    def told_before(self) -> Sequence[str] | None:
        """Return the calls in the background whose results the model was told here, in order.

        It is asked wherever results may be told while such calls are open, and the answer is None
        where the run has not been before.
        """
        ...

    def said_before(self, turn: int) -> Sequence[Mapping[str, Any]] | None:
        """Return what the user said within the run behind a turn, counted from 1.

        None: the run has not gone on behind it before.
        """
        ...

    def says(self, turn: int, messages: Sequence[Mapping[str, Any]]) -> None:
        """Write down what the user says behind a turn."""
        ...

    def tells(self, calls: Sequence[str]) -> None:
        """Write down the calls in the background whose results the model is told here."""
        ...


class CallHooks(Protocol):
    """Decides about the calls of a run. What it raises ends the run."""

    async def before_call(
        self, context: "CallContext", arguments: dict[str, Any]
    ) -> dict[str, Any] | str | None:
        """Return other arguments, the reason why the call is not made, or None to make it."""
        ...

    async def after_call(self, context: "CallContext", result: ToolResult) -> ToolResult:
        """Return the result that the model gets."""
        ...


class SharedBudget(Protocol):
    """What a run has left, which it shares with the agents that its tools run."""

    @property
    def tokens_left(self) -> int | None:
        """The tokens that may still be decoded; None: any number."""
        ...

    def is_used_up(self, limit: str) -> bool:
        """Return whether nothing is left of a limit, such as `max_calls`."""
        ...

    def price(self, computed: int, cached: int, completion: int) -> float:
        """Return what tokens cost whose agent has no prices of its own."""
        ...

    def begin_request(self) -> None:
        """Count a turn of an agent's model that begins."""
        ...

    def add(self, usage: Usage, cost: float) -> None:
        """Count what an agent has used."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ToolRun:
    """What tools and their dispatcher know of the run whose calls they make."""

    scope: Scope = field(default_factory=lambda: Scope(uuid.uuid4().hex))
    """The tools' resources for the session, closed with the dispatcher."""
    conversation: str = ""
    """Digest of the conversation before the run; the same request sent again has the same one."""
    asker: str = ""
    """Digest of the client's identity, equal for all requests of one client; empty: unknown."""
    tenant: str = ""
    """Digest of the client's API key, which may leave only so many questions open; empty: none."""
    usable: Callable[[], Awaitable[None]] | None = None
    """Returns once the run can use a result of a call, and raises if it never will."""
    results: ResultLimits = field(default_factory=ResultLimits)
    """To what length results are cut."""
    on_call: OnCall | None = None
    """Observes each call that starts."""
    log: CallLog | None = None
    """Knows the results of calls that were made before."""
    budget: SharedBudget | None = None
    """What is left of the run's limits."""
    hooks: CallHooks | None = None
    """Decides about the calls."""
    facts: RunFacts = NO_FACTS
    """The run's dependencies, and what it has done so far."""
    program: str = ""
    """The name by which the engine knows the run's session; empty: the scope's id."""
    cache_salt: str | None = None
    """Keeps the run's KV cache apart from that of runs with another salt."""
    record: Callable[[str, str], Any] | None = None
    """Returns what records the tokens of a sub-agent's session, by its name and its parent's."""

    @property
    def parent(self) -> str:
        """The name of the session that sub-agents call their parent."""
        return self.program or self.scope.session_id

    def of_sub_agent(self, asker: str, facts: RunFacts) -> "ToolRun":
        """Return the begin of a run that a tool of this one starts; `asker` is its own, if any."""
        return ToolRun(
            asker=asker or self.asker,
            tenant=self.tenant,
            facts=facts,
            cache_salt=self.cache_salt,
            record=self.record,
        )


async def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class CallContext:
    """One running call."""

    call: ToolCall
    run: ToolRun
    report: Callable[[str], None] = field(default=lambda text: None)
    """Reports progress to the client, one line at a time. Call it on the event loop."""
    watch: CallWatch | None = None
    """The tracer of the call."""
    expect: Callable[[float], None] = field(default=lambda seconds: None)
    """Says how many more seconds the call will take, for the handling of the paused request's KV.
    A later forecast replaces an earlier one. Call it on the event loop."""
    starts: Callable[[], Awaitable[None]] = field(default=_nothing)
    """Awaited right before the tool runs, behind any approval. It may raise: then it must not run.
    """
    notice: str = ""
    """What a person must know who approves the call; empty for most calls."""

    @property
    def scope(self) -> Scope:
        """Resources that tools keep for the session."""
        return self.run.scope

    @property
    def conversation(self) -> str:
        """Digest of the conversation before the run."""
        return self.run.conversation

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers for requests that the tool sends: the W3C trace context, or none."""
        return {} if self.watch is None else self.watch.headers

    def view(self) -> RunView[Any]:
        """Return what the tool's function gets if it has a parameter for it."""
        return RunView(
            self.run.facts.deps,
            session=self.scope.session_id,
            call=self.call,
            facts=self.run.facts,
            report=self.report,
        )

    def mark(self, name: str, **facts: Fact) -> None:
        """Record an event in the call's trace, if the call is traced."""
        if self.watch is not None:
            self.watch.mark(name, facts)


_CURRENT: ContextVar[CallContext] = ContextVar("caesura_call")


def current() -> CallContext:
    """Return the call that this code serves. Raises LookupError outside of a call.

    It also works in plain functions that are tools, and in threads of `asyncio.to_thread`.
    """
    return _CURRENT.get()


def calling() -> CallContext | None:
    """Return the call that this code serves, or None outside of a call."""
    return _CURRENT.get(None)


def trace_headers() -> Mapping[str, str]:
    """Return the headers of the call that this code serves; none outside of a call."""
    context = calling()
    return {} if context is None else context.headers


def mark(name: str, **facts: Fact) -> None:
    """Record an event in the trace of the current call; do nothing outside of a call."""
    context = calling()
    if context is not None:
        context.mark(name, **facts)


def enter(context: CallContext) -> Token[CallContext]:
    """Make `context` the current one for the current task. The dispatcher calls this."""
    return _CURRENT.set(context)


def leave(token: Token[CallContext]) -> None:
    """Undo `enter`."""
    _CURRENT.reset(token)
