"""What the functions of an agent's author may know of a run: `Context`, and the run's `Usage`.

Tools and instructions that need more than their arguments have a parameter of this type.
"""

import asyncio
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic

from typing_extensions import TypeVar

from caesura.tools.result import ToolCall

Deps = TypeVar("Deps", default=Any)
"""The type of the dependencies that a run is given."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token and call totals over a run or a session.

    `prompt_tokens` counts the tokens that the caller and the tools appended, `completion_tokens`
    the decoded ones, of which `reasoning_tokens` were thought. `cached_tokens` counts the context
    tokens that needed no computation when a turn began, summed over turns.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    turns: int = 0
    calls: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum of two usages, field by field."""
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.turns + other.turns,
            self.calls + other.calls,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        """Return what was used since `other`."""
        return Usage(
            self.prompt_tokens - other.prompt_tokens,
            self.completion_tokens - other.completion_tokens,
            self.cached_tokens - other.cached_tokens,
            self.turns - other.turns,
            self.calls - other.calls,
            self.reasoning_tokens - other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run tells of itself: its dependencies, and what it has done so far."""

    deps: Any = None
    usage: Callable[[], Usage] = Usage
    """The usage so far, at any time."""
    messages: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """The history so far, without the turn under way."""


NO_FACTS = RunFacts()


class Context(Generic[Deps]):
    """The run that a tool or a function of instructions serves.

        @tool
        async def price(context: Context[Shop], item: str) -> float:
            \"\"\"Look up what an item costs.\"\"\"
            return await context.deps.price(item)

    The parameter may stand anywhere, and the model does not see it. `deps` is what the run was
    given as `deps=`. `session` is the session's id. `call` is the call that is served, or None
    outside of tools. A test may construct a context with `deps` alone.
    """

    def __init__(
        self,
        deps: Deps,
        *,
        session: str = "",
        call: ToolCall | None = None,
        facts: RunFacts = NO_FACTS,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.deps = deps
        self.session = session
        self.call = call
        self._facts = facts
        self._report = report
        self._loop = _running_loop()

    @property
    def usage(self) -> Usage:
        """The usage of the run so far, up to its last ended turn."""
        return self._facts.usage()

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The session's history so far, without the turn under way."""
        return self._facts.messages()

    def report(self, text: str) -> None:
        """Report a call's progress, one line at a time; any thread may do so."""
        if self._loop is None or self._loop is _running_loop():
            self._report(text)
            return
        with suppress(RuntimeError):  # the loop may be closed already
            self._loop.call_soon_threadsafe(self._report, text)

    def __repr__(self) -> str:
        """Return the context's dependencies and place."""
        call = f", call={self.call.name}" if self.call else ""
        return f"<Context of {self.deps!r}, session={self.session!r}{call}>"


def misfit(deps: Any, hint: Any) -> str | None:
    """Return the type that the annotation of a context wants and `deps` are not of, if so.

    A type that no object can be checked against, such as a plain Protocol, takes all.
    """
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    for kind in typing.get_args(hint):
        with suppress(TypeError):
            if not isinstance(deps, kind):
                return str(getattr(kind, "__name__", kind))
    return None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_HANDED: ContextVar[Context[Any]] = ContextVar("caesura_context")


@contextmanager
def handing(context: Context[Any]) -> Iterator[None]:
    """Give the context to the functions that are called within."""
    token = _HANDED.set(context)
    try:
        yield
    finally:
        _HANDED.reset(token)


def handed() -> Context[Any]:
    """Return the context of the run that this code serves. Raises LookupError outside of one."""
    try:
        return _HANDED.get()
    except LookupError:
        raise LookupError(
            "a function with a Context was called outside of a run: call it with Context(deps)"
        ) from None
