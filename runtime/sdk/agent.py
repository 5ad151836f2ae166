"""`Agent`: a model with its tools and instructions.

Its tools are functions, built-in tools, and sources that start on demand.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Union, Unpack, overload

from typing_extensions import TypeVar

from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.runtime.events import CallFinished, OutputWritten, RunEnded, RunEvent, T
from caesura.runtime.run.limits import Limits
from caesura.runtime.run.media import MediaFetcher
from caesura.runtime.sdk.background import BACKGROUND
from caesura.runtime.sdk.engines import ENGINES
from caesura.runtime.sdk.handoffs import Role, handoff_tool, with_tools
from caesura.runtime.sdk.hooks import Hooks, Prompt, checked
from caesura.runtime.sdk.instructions import AnyInstructions, Instructions, check_deps
from caesura.runtime.sdk.models import Model, models_of, ready
from caesura.runtime.sdk.settings import About, AgentParts, Answer, SessionSettings
from caesura.runtime.tracing.setup import tracing_of
from caesura.scheduler.messages import Message, Sampling
from caesura.tools import Registry, Tool
from caesura.tools.closing import AsyncClosing
from caesura.tools.context import calling, current
from caesura.tools.tool import ToolOptions

if TYPE_CHECKING:
    from caesura.runtime.recording.recorder import Recorder
    from caesura.runtime.sdk.agent_tools import OwnTool
    from caesura.runtime.sdk.fallback import FallbackEngine
    from caesura.runtime.sdk.memory import Begin
    from caesura.runtime.sdk.output import OutputForm
    from caesura.runtime.sdk.session import Session
    from caesura.runtime.sdk.sessions import Sessions
    from caesura.runtime.tracing.setup import Given
    from caesura.tools.config.caesura_toml import Config
    from caesura.tools.people import Callback, Pending

LOG = logging.getLogger(__name__)
DEFAULT_SAMPLING = Sampling()
D = TypeVar("D", contravariant=True, default=Any)
"""The type of the dependencies that an agent's runs are given."""
AnyTool = Union["OwnTool", "Agent[Any, Any]"]
"""An item of an agent's list of tools."""
Handoffs = Iterable["Agent[Any, Any]"] | Callable[[], Iterable["Agent[Any, Any]"]]
"""The agents that a conversation may be passed to, or a function that names them later."""


_TASK = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "what to do, with all that must be known for it"}
    },
    "required": ["task"],
    "additionalProperties": False,
}
"""The arguments of an agent that is a tool."""


class AgentOptions(TypedDict, total=False):
    """Keywords of `Agent` besides `output`."""

    model: Model
    api_key: str | None
    output_retries: int
    config: "Config | Path | str | None"
    instructions: AnyInstructions[Any] | None
    name: str | None
    hooks: Iterable[Hooks[Any]]
    handoffs: "Handoffs"
    sampling: Sampling
    limits: Limits | None
    on_question: "Callback | None"
    on_approval: "Callback | None"
    tracing: "Given"
    recorder: "Recorder | None"
    trajectories: bool


class Agent(AsyncClosing, Generic[T, D]):
    """A model with tools.

        agent = Agent(tools=["calculator", my_function], instructions="Answer in one sentence.")
        answer = await agent.run("What is 12 * 7?")

    The first argument, or `model`, is None for the bundled tiny model, a Hugging Face id, a
    directory, or an `Engine` to use as it is. A named model's engine starts at the first use, and
    all agents of the process with that model share it. `aclose` or `async with` releases the
    engine; the last agent to release it closes it. All event loops and threads may use an agent.
    Functions that are tools run on the event loop of the run that calls them.

    The first argument may also be the address of a server, such as "http://host:8000/v1": of
    `caesura serve`, or of another with OpenAI's chat completions. `model` then names one of its
    models, by default the first, and `api_key` is sent with each request. Tools run here. See
    `RemoteEngine`. A list holds a model and those that stand in for it: where an engine fails, the
    run goes on with the next one, and makes no call again.

    `tools` holds typed functions, `Tool`s, other agents, sources of tools such as an `MCPServer`,
    or names of built-in tools and of the configuration's MCP servers. Sources start at the first
    run. A session has the tools that exist when it begins. `config` is a configuration or its
    file, and configures built-in tools. Without `tools`, the agent has all tools of the
    configuration.
    `instructions` become the system message. A function of instructions, which may be async and may
    take a `Context`, is asked once before a session's first turn. `limits` bound each run; by
    default they are the configuration's, else `Limits()`.

    `hooks` stand before and after the model's turns and the calls of tools, and may refuse, change
    or end what comes, see `Hooks`.

    `handoffs` are agents that the model may pass the conversation to, by tools named
    `transfer_to_NAME`. The other agent goes on with it, with its own model, instructions, tools and
    hooks, within this run's limits. A function names agents that are not constructed yet.

    `output` is what an answer must be: a type that pydantic takes, such as a model, a dataclass, a
    TypedDict, a union, a list or a Literal, or a typed function. The engine's grammar enforces its
    JSON schema, and the instructions tell it to the model. The model may still call tools. It is
    told what is wrong with an answer that is not valid, or for which the function raises
    ValueError, and tries again up to `output_retries` times within the same limits. `Answer.output`
    is the validated value, or what the function returned. Without `output`, or with `str`, it is
    the text.

    `on_question` answers the questions of `ask_user`. `on_approval` approves (True) or denies
    (False, or the reason as a text) the calls of tools that need approval. Both get the `Pending`
    item, and are async or run in a thread. They may return None to leave the item to
    `Session.answer`, `approve` and `deny`. Without them the log says what waits. `run`, `stream`
    and `run_sync` show no session to a caller, so a tool that needs approval needs `on_approval`
    there.

    `tracing` is OpenTelemetry's `TracerProvider` or `SpanProcessor` for the runs' spans, or False
    for none. None follows the environment, such as `OTEL_EXPORTER_OTLP_ENDPOINT`. A `recorder`
    (`caesura.runtime.recording.recorder`) gets the spans too; the caller closes it.

    With `trajectories` each session keeps the tokens of all its turns for `Session.trajectory`, as
    long as the session's object lives. The model must run in this process's engines.

    Raises `UsageError` for an argument of another kind, an unknown name and a tool that cannot be
    set up, and for an `output` without a JSON schema. Raises TypeError or ValueError for a function
    that cannot become a tool.
    """

    @overload
    def __init__(
        self: "Agent[str, D]",
        engine: Model = None,
        /,
        tools: Iterable[AnyTool] | None = None,
        *,
        output: None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        engine: Model = None,
        /,
        tools: Iterable[AnyTool] | None = None,
        *,
        output: type[T] | Callable[..., Coroutine[Any, Any, T]] | Callable[..., T],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[Any, D]",
        engine: Model = None,
        /,
        tools: Iterable[AnyTool] | None = None,
        *,
        output: Any,
        **options: Unpack[AgentOptions],
    ) -> None: ...

    def __init__(
        self,
        engine: Model = None,
        /,
        tools: Iterable[AnyTool] | None = None,
        *,
        model: Model = None,
        api_key: str | None = None,
        output: Any = None,
        output_retries: int = 2,
        config: "Config | Path | str | None" = None,
        instructions: AnyInstructions[Any] | None = None,
        name: str | None = None,
        hooks: Iterable[Hooks[Any]] = (),
        handoffs: "Handoffs" = (),
        sampling: Sampling = DEFAULT_SAMPLING,
        limits: Limits | None = None,
        on_question: "Callback | None" = None,
        on_approval: "Callback | None" = None,
        tracing: "Given" = None,
        recorder: "Recorder | None" = None,
        trajectories: bool = False,
    ) -> None:
        # A late import: it reads configurations, by pydantic, which takes long.
        from caesura.runtime.sdk.agent_tools import AgentTools, listed

        _check_kinds(sampling, name, on_question, on_approval, limits, trajectories)
        form = _form_of(output, output_retries, sampling)
        self._models = models_of(engine, model, api_key, tells_tokens=trajectories)
        self._fallback: FallbackEngine | None = None
        spans = tracing_of(tracing, recorder)
        own = tuple(each.as_tool() if isinstance(each, Agent) else each for each in listed(tools))
        shared = tools if isinstance(tools, Registry) else None
        self._tools = AgentTools(None if tools is None else own, config, shared)
        people = self._tools.asked(on_question or _tell_question, on_approval or _tell_approval)
        self._decides = on_approval is not None
        self._instructions = Instructions(instructions, None if form is None else form.instructions)
        if form is not None:
            sampling = replace(sampling, text=form.text)
        self._settings = SessionSettings(
            sampling=sampling,
            limits=self._tools.limits if limits is None else limits,
            media=MediaFetcher(allow_private=self._tools.toolset.services.allow_private),
            people=people,
            tracing=spans,
            output=form,
            tries=output_retries + 1,
            hooks=checked(hooks),
            trajectories=trajectories,
        )
        self.name, self._output, self._closed = name, output, False
        self._given = own, limits
        more: dict[str, object] = {"config": config, "tracing": tracing, "recorder": recorder}
        more |= {"on_question": on_question, "on_approval": on_approval}
        more["trajectories"] = trajectories or None
        self._ties = [name for name, each in more.items() if each is not None]
        self._handoffs = handoffs if callable(handoffs) else tuple(listed(handoffs))
        if not callable(handoffs):
            self._transfers()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The agent's own tools in the order given, then those of sources that have started."""
        return tuple(self._tools.registry)

    @property
    def trajectories(self) -> bool:
        """Whether its sessions record their tokens, for `Session.trajectory`."""
        return self._settings.trajectories

    async def start(self) -> None:
        """Start the engine and the sources of tools now, so that the first run need not wait.

        Without it they start with the first run. Raises `EngineFailed` and `UsageError`.
        """
        self._refuse_closed()
        await self._tools.fill(self._tools.selection())
        await self._engine()

    async def run(self, prompt: Prompt, *, deps: D | None = None) -> Answer[T]:
        """Return the answer to a prompt, without any history.

        A prompt is a text, or parts in OpenAI's form, such as a text and pictures. `deps` are the
        dependencies that `Context.deps` gives to tools and to functions of instructions. Within a
        tool they are those of the run that calls it by default.

        Raises `LimitReached`, `ContextOverflow` and `EngineFailed`, and `InvalidOutput` if no
        answer fits the output type. Raises `UsageError` for a tool that needs approval where there
        is no `on_approval`, and for `deps` of a wrong type. A failing tool raises nothing: its
        error goes to the model.
        """
        async with self._session(deps=deps, decides=self._decides) as session:
            return await session.run(prompt)

    async def stream(
        self, prompt: Prompt, *, deps: D | None = None
    ) -> AsyncGenerator[RunEvent | OutputWritten[T], None]:
        """Send a prompt without any history and yield the run's events; `RunEnded` comes last.

        To leave the loop early, wrap the call in `contextlib.aclosing`, which cancels the run at
        once. Raises the errors of `run`.
        """
        session = self._session(deps=deps, decides=self._decides)
        async with session, aclosing(session.stream(prompt)) as events:
            async for event in events:
                yield event

    def run_sync(self, prompt: Prompt, *, deps: D | None = None) -> Answer[T]:
        """Return the answer as `run` does, for code without an event loop, in any thread.

        The engine keeps running between calls. Raises `UsageError` inside a running event loop,
        and the errors of `run`.
        """
        return BACKGROUND.run(lambda: self.run(prompt, deps=deps), "await agent.run(...)")

    def session(
        self,
        messages: Sequence[Message] = (),
        *,
        user: str | None = None,
        parent: "Session[Any] | str | None" = None,
        deps: D | None = None,
        id: str | None = None,
        store: "Sessions | Path | str | None" = None,
        state: str | None = None,
    ) -> "Session[T]":
        """Return a conversation, to be used in `async with`.

        `messages` is a history to continue, such as `answer.messages`. The agent's instructions
        precede it unless it begins with a system message. `user` names the person or the program
        that sends prompts. An approval that outlives this process counts only for the same user.
        `parent` is the session, or its id, that starts this one as a sub-agent. The engine then
        serves this session at its parent's place in the queue. Within a tool, the parent is the
        session that calls the tool by default. `deps` are those of all its runs, see `run`.

        `store` keeps the session under its `id`, with its tokens, and one that is there goes on.
        It is a `Sessions`, or what makes one: a file, or the address of a database. `state` is the
        `Session.state()` of another session, from which this one goes on by itself. With another
        model, other tools or other instructions its messages are rendered again, and the log says
        so. Raises `UsageError` for an `id` or a `state` that cannot be one.
        """
        from caesura.runtime.sdk.memory import begin_of  # as below

        begin = begin_of(messages, id, store, state)
        return self._session(begin, user, parent, deps)

    def _session(
        self,
        begin: "Begin | None" = None,
        user: str | None = None,
        parent: "Session[Any] | str | None" = None,
        deps: Any = None,
        decides: bool = True,
    ) -> "Session[T]":
        """Return a session; without `decides`, nobody can approve the calls of its tools."""
        # A late import: sessions bring stores and journals, and an agent may have none yet.
        from caesura.runtime.sdk.memory import Begin
        from caesura.runtime.sdk.session import Session

        caller = calling()
        if deps is None and caller is not None:
            deps = caller.run.facts.deps
        check_deps(deps, self._wanted_deps())
        role = self._role(decides)
        about = About(
            name=self.name,
            user=user,
            parent=parent.id if isinstance(parent, Session) else parent or "",
            deps=deps,
            instructions=self._instructions,
        )
        return Session(role.engine, role.registry, role.settings, about, begin or Begin())

    def _role(self, decides: bool) -> Role:
        """Return what the agent brings to a session; see `_session`."""
        registry, transfers, filled = self._tools.selection(), self._transfers(), False
        settings = self._settings
        if transfers:
            roles = {
                tool.name: partial(other._role, decides and other._decides)
                for tool, other in transfers
            }
            settings = replace(settings, roles=roles)
        with_tools(registry, [tool for tool, _ in transfers])

        async def engine() -> Engine:
            nonlocal filled
            self._refuse_closed()  # before any tools start
            if not filled:
                await self._tools.fill(registry)
                with_tools(registry, [tool for tool, _ in transfers])
                if not decides:
                    self._tools.refuse_approvals(registry)
                filled = True
            return await self._engine()

        return Role(engine, registry, settings, self._instructions, self.name)

    def _transfers(self) -> "list[tuple[Tool, Agent[Any, Any]]]":
        """Return the agents that a conversation may be passed to, each with the tool that does so.

        Raises `UsageError`.
        """
        others = self._handoffs() if callable(self._handoffs) else self._handoffs
        for other in others:
            if not isinstance(other, Agent):
                raise UsageError(f"handoffs are agents, got {other!r}")
            if other._output is not self._output:
                raise UsageError(
                    f"{other!r} has another output than {self!r}: agents that pass conversations to"
                    " each other answer with one type"
                )
        return [(handoff_tool(other.name, other._instructions), other) for other in others]

    def _wanted_deps(self) -> list[tuple[str, Any]]:
        """Return the annotations of contexts, of all agents that may answer."""
        wanted: list[tuple[str, Any]] = []
        seen: list[Agent[Any, Any]] = [self]
        for agent in seen:  # which grows
            wanted += [(tool.name, each) for tool in agent.tools for each in tool.contexts]
            named = "the function of the instructions"
            wanted += [(named, each) for each in agent._instructions.contexts]
            seen += [other for _, other in agent._transfers() if other not in seen]
        return wanted

    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> Tool:
        """Return a tool by which another agent gives this one a task and gets its answer.

        The name is the agent's by default, and the description its instructions. `options` are
        those of `@tool`; without a `timeout_seconds` this agent's `limits` bound a task. Each task
        is a session of its own, at the other agent's place in the queue. It spends the tokens of
        the other agent's run, whose time is also this one's. What it calls is reported as the
        tool's progress.

        Raises `UsageError` without a name or a description.
        """
        name, description = name or self.name, description or self._instructions.text
        if not name or not description:
            raise UsageError(
                f"{self!r} has no {'instructions' if name else 'name'}, which another agent needs"
                " to call it: write agent.as_tool(name=..., description=...)"
            )

        async def work(task: str) -> str:
            context, text = current(), ""
            session = self._session(decides=self._decides)
            async with session, aclosing(session.stream(task)) as events:
                async for event in events:
                    if isinstance(event, CallFinished):
                        context.report(f"{event.name} {event.arguments}")
                    elif isinstance(event, RunEnded):
                        text = event.text
            return text

        given: ToolOptions = {"timeout_seconds": None, **options}
        return Tool.from_schema(name, description, _TASK, work, **given)

    async def aclose(self) -> None:
        """Close the agent's tools, and release its engine unless the caller passed it in.

        The agent cannot be used afterwards. Idempotent.
        """
        self._closed = True
        try:
            await self._settings.media.aclose()
            await self._tools.aclose()
        finally:
            for model in self._models:
                if model is None or isinstance(model, str):
                    await ENGINES.release(model, self)

    def close(self) -> None:
        """Close the agent as `aclose` does, for code that uses `run_sync`."""
        BACKGROUND.run(self.aclose, "await agent.aclose()")

    async def _engine(self) -> Engine:
        """Return the engine, for any event loop. Raises `UsageError` once the agent is closed."""
        self._refuse_closed()
        if len(self._models) == 1:
            return await ready(self._models[0], self)
        from caesura.runtime.sdk.fallback import FallbackEngine  # few agents need several

        if self._fallback is None:
            starts = [partial(ready, model, self) for model in self._models]
            self._fallback = FallbackEngine(starts)
        await self._fallback.begin()
        return self._fallback

    def _refuse_closed(self) -> None:
        if self._closed:
            raise UsageError(
                f"{self!r} is closed, at the end of its `async with` block or by aclose(): use it"
                " before that, or make another agent, which starts the engine again"
            )

    def __repr__(self) -> str:
        named = [each if isinstance(each, str | None) else each.model for each in self._models]
        model = ", then ".join(each or "the bundled model" for each in named)
        name = f" {self.name!r}" if self.name else ""
        return f"<Agent{name} on {model}: {list(self._tools.registry.names)}>"


def _form_of(output: Any, retries: int, sampling: Sampling) -> "OutputForm[Any] | None":
    """Return what answers must be, or None for texts. Raises `UsageError`."""
    if type(retries) is not int or retries < 0:
        raise UsageError(f"output_retries must be a whole number from 0, got {retries!r}")
    if output is None or output is str:
        return None
    if sampling.text is not None:
        raise UsageError(
            f"sampling.text is {sampling.text.kind}, and output sets it too: give one of the two"
        )
    from caesura.runtime.sdk.output import OutputForm  # only typed answers need it

    return OutputForm(output, retries)


def parts_of(agent: Agent[Any, Any]) -> AgentParts:
    """Return what an agent was made from."""
    settings, (tools, limits) = agent._settings, agent._given
    ties = {*agent._ties}
    ties |= {"model"} if agent._models != (None,) else set()
    ties |= {"handoffs"} if agent._handoffs else set()
    ties |= {"hooks"} if settings.hooks else set()
    return AgentParts(
        instructions=agent._instructions,
        tools=tools,
        output=agent._output,
        output_retries=settings.tries - 1,
        form=settings.output,
        sampling=settings.sampling,
        limits=limits,
        wanted_deps=agent._wanted_deps(),
        ties=frozenset(ties),
    )


def _check_kinds(
    sampling: object,
    name: object,
    on_question: object,
    on_approval: object,
    limits: object,
    trajectories: object,
) -> None:
    """Raise `UsageError` for an argument of another type."""
    _check("sampling", sampling, Sampling, "sampling=Sampling(temperature=0.2)")
    _check("name", name, str | None, 'name="helper"')
    _check("on_question", on_question, Callable | None, "on_question=ask, a function")
    _check("on_approval", on_approval, Callable | None, "on_approval=decide, a function")
    _check("limits", limits, Limits | None, "limits=Limits(max_turns=3)")
    _check("trajectories", trajectories, bool, "trajectories=True")


def _check(name: str, given: object, kind: Any, example: str) -> None:
    if not isinstance(given, kind):
        raise UsageError(f"{name} is of type {type(given).__name__}: write {example}")


async def _tell_approval(item: "Pending") -> None:
    LOG.warning(
        "a call of %s waits for a person until its deadline: decide with session.approve(%r) or"
        " session.deny(%r), or give the Agent an on_approval",
        item.tool,
        item.id,
        item.id,
    )


async def _tell_question(item: "Pending") -> None:
    LOG.warning(
        "a question of %s waits for a person until its deadline: answer with"
        " session.answer(%r, text), or give the Agent an on_question",
        item.tool,
        item.id,
    )
