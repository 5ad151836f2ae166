"""The plan of a run, what it needs besides, and the one place where both are put together.

The server and the SDK begin their runs here.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from caesura.intercept.calls.events import TurnEnded
from caesura.intercept.pause_hints import PauseHint
from caesura.runtime.engine import Engine, EngineSession
from caesura.runtime.errors import EngineFailed
from caesura.runtime.events import RunEvent, ToolReturned
from caesura.runtime.run.limits import Budget, Limits
from caesura.runtime.run.media import NO_PICTURES, Pictures
from caesura.runtime.run.steering import Steering
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.tools.context import CallWatch, ToolRun
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.people import person_deadline
from caesura.tools.registry import Registry
from caesura.tools.result import ResultLimits, ToolCall
from caesura.tools.tool import Tool

STEP_SECONDS = 0.05
"""The expected pause at a call in the background, which lasts about one step of the engine."""
PERSON_SECONDS = 60.0
"""The expected time of a person's answer if the tool does not state it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One request, ready to run.

    `registry` holds only the tools that the client asked the server to run, so the model can
    call no other tool of the server. The client runs `client_tools`.
    """

    messages: tuple[Message, ...]
    conversation: str
    """The digest of the messages."""
    user: str | None
    """The client's user, as the request names it."""
    spec: SessionSpec
    sampling: Sampling
    registry: Registry
    client_tools: frozenset[str]
    limits: Limits
    forced_name: str | None = None
    """The tool that the request forces the model to call."""
    choices: int = 1
    """How many answers the request gets, each from a run of its own."""
    notes: tuple[str, ...] = ()
    """What of the request is left out, beside its fields."""
    client_background: frozenset[str] = frozenset()
    """Those of the client's tools for whose results the model does not wait."""
    agent: str | None = None
    """The agent that the request names as its model."""

    def of_choice(self, number: int) -> "Plan":
        """Return the plan of one choice, which has a seed of its own if the request has one."""
        if self.sampling.seed is None:
            return self
        return replace(self, sampling=replace(self.sampling, seed=self.sampling.seed + number))


def pauses_of(tools: Iterable[Tool]) -> dict[str, PauseHint]:
    """Return hints by name, for tools that wait for a person or state their expected time."""
    return {tool.name: hint for tool in tools if (hint := _hint(tool)) is not None}


def _hint(tool: Tool) -> PauseHint | None:
    if tool.background:
        return PauseHint(STEP_SECONDS)
    seconds = tool.expected_seconds
    if tool.waits_for_person or tool.approval:
        deadline = person_deadline(tool)
        seconds = min(seconds or PERSON_SECONDS, deadline or float("inf"))
        return PauseHint(seconds, deadline, person=True)
    return None if seconds is None else PauseHint(seconds)


class RunTrace(Protocol):
    """Observes a run, its turns and its calls, for spans."""

    def session(self, session: EngineSession) -> EngineSession:
        """Return the engine session, wrapped so that its turns are seen."""
        ...

    def call(self, call: ToolCall) -> CallWatch:
        """Begin to observe a call."""
        ...

    def events(self, events: AsyncGenerator[RunEvent, None]) -> AsyncGenerator[RunEvent, None]:
        """Yield the run's events; see its end."""
        ...


class RunObserver(Protocol):
    """Counts what a run does. It is told before the reader of the run's events."""

    def turn_ended(self, turn: TurnEnded) -> None:
        """Count a turn of the model."""
        ...

    def tool_returned(self, returned: ToolReturned) -> None:
        """Count a call that this side has run."""
        ...


@dataclass(frozen=True, slots=True)
class RunContext:
    """What one run knows beside its session and its messages."""

    registry: Registry = field(default_factory=Registry)
    """The tools whose calls are run here."""
    client_tools: frozenset[str] = frozenset()
    """The names of the tools whose calls end the run, since the client runs them."""
    client_background: frozenset[str] = frozenset()
    """Those of them whose calls do not: the model goes on, and is told results in later runs."""
    limits: Limits = field(default_factory=Limits)
    budget: Budget | None = None
    """What is left of the limits, where several runs share them."""
    sampling: Sampling | None = None
    """Replaces the session's for every turn, unless it is None."""
    pausing: bool = True
    """As in the session's `SessionSpec`; if False, all calls are the client's."""
    pictures: Pictures = NO_PICTURES
    """Shows the model the pictures that tools make."""
    steering: Steering | None = None
    """What the caller says to the run while it is under way."""
    results_first: Sequence[str] = ()
    """Calls of a run that is driven again, whose results come in this order before any others."""
    tools: ToolRun = field(default_factory=ToolRun)
    """What the tools know of the run."""
    trace: RunTrace | None = None
    observer: RunObserver | None = None

    @classmethod
    def of(
        cls,
        engine: Engine,
        plan: Plan,
        tools: ToolRun,
        pictures: Pictures,
        trace: RunTrace | None = None,
        results_first: Sequence[str] = (),
    ) -> "RunContext":
        """Return what a run of `plan` needs; `tools` says who asks, and what knows the calls."""
        limits = ResultLimits.of_model(engine.count_tokens, engine.context_tokens)
        return cls(
            registry=plan.registry,
            client_tools=plan.client_tools,
            client_background=plan.client_background,
            limits=plan.limits,
            sampling=plan.sampling,
            pausing=plan.spec.pausing,
            pictures=pictures,
            results_first=results_first,
            tools=replace(
                tools,
                conversation=plan.conversation,
                usable=partial(until_alive, engine),
                results=limits,
                on_call=None if trace is None else trace.call,
            ),
            trace=trace,
        )

    @property
    def session_id(self) -> str:
        """The id of the answer, or of the session of several answers, that the run belongs to."""
        return self.tools.scope.session_id

    def dispatcher(self) -> Dispatcher:
        """Return a dispatcher of the run's own calls."""
        return Dispatcher(self.registry, self.tools)


async def until_alive(engine: Engine) -> None:
    """Return once the engine takes requests; raise `EngineFailed` if it never will again."""
    try:
        await engine.check_health()
    except EngineFailed as error:
        await engine.revived(error)
