"""A conversation of an agent: several runs with one history, in one engine session."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, cast

from caesura.runtime.engine import Engine, EngineSession
from caesura.runtime.errors import EngineFailed, InvalidOutput, UsageError
from caesura.runtime.events import (
    HookActed,
    ModelChanged,
    OutputRefused,
    OutputWritten,
    RunEnded,
    RunEvent,
    T,
    TurnEnded,
    Usage,
)
from caesura.runtime.run.context import Plan, RunContext, pauses_of
from caesura.runtime.run.fold import RunFold, Transcript, UsageCount, asker_of, digest
from caesura.runtime.run.limits import Budget, Limits, bounded
from caesura.runtime.run.loop import traced
from caesura.runtime.run.media import (
    NO_PICTURES,
    Content,
    MediaFetcher,
    Pictures,
    content_of,
    count_pictures,
)
from caesura.runtime.sdk.hooks import End, HookedSession, HookRun, Hooks, Prompt, RunEndedByHook
from caesura.runtime.sdk.instructions import Instructions
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.programs import Origin
from caesura.tools.closing import AsyncClosing
from caesura.tools.context import ToolRun, calling
from caesura.tools.dispatcher import Dispatcher, ToolCall, ToolResult
from caesura.tools.people import Pending, People, PeopleError
from caesura.tools.registry import Registry
from caesura.tools.run_view import Context, RunFacts, handing

if TYPE_CHECKING:
    from caesura.runtime.sdk.output import OutputForm
    from caesura.runtime.tracing.tracing import Tracing


NO_INSTRUCTIONS = Instructions(None)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The answer of a run.

    `output` is of the agent's output type; without one it is the text. `reason` is `stop`, or
    `length` if a token limit cut the text. `calls` holds the run's calls with their results, in
    the model's order, including malformed calls. `messages` is the whole history after the run, in
    OpenAI's form. `usage` is the run's own; `total_usage` has that of its sub-agents too, and
    `cost` is what that costs by `Limits.prices`.
    """

    text: str
    reason: Literal["stop", "length"]
    usage: Usage
    calls: tuple[tuple[ToolCall, ToolResult], ...]
    messages: tuple[Message, ...]
    output: T
    total_usage: Usage
    cost: float

    def __str__(self) -> str:
        """Return the answer's text."""
        return self.text

    def __repr__(self) -> str:
        tokens = self.usage.completion_tokens
        return f"<Answer {self.text!r}: {self.reason}, {len(self.calls)} call(s), {tokens} tokens>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What the sessions of an agent share.

    `people` answer their questions and approve their calls. Without `tracing` runs have no spans.
    Without `output` answers are texts.
    """

    sampling: Sampling
    limits: Limits
    media: MediaFetcher
    people: People
    tracing: "Tracing | None"
    output: "OutputForm[Any] | None"
    tries: int
    """How often an answer is asked for that does not fit, or that a hook refuses."""
    hooks: tuple[Hooks[Any], ...]


class Session(AsyncClosing, Generic[T]):
    """A conversation, from `Agent.session()`; close it, or use it in `async with`.

    A session has one run at a time. The error of a failing tool goes to the model, and the run
    continues. A run may end early: cancelled, at a limit, or with an error. Its text then stays
    in `messages`, with its open calls answered as cancelled, and the next run opens a new engine
    session with that history. A run that ended before the model's first output leaves no trace.
    """

    def __init__(
        self,
        engine: Callable[[], Awaitable[Engine]],
        registry: Registry,
        settings: SessionSettings,
        *,
        messages: Sequence[Message] = (),
        name: str | None = None,
        user: str | None = None,
        parent: str = "",
        deps: Any = None,
        instructions: Instructions = NO_INSTRUCTIONS,
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._settings = settings
        self._name = name
        self._caller = calling()
        """The call of a tool that opened the session, whose run has its tokens counted too."""
        caller = None if self._caller is None else self._caller.run
        self._parent = parent or ("" if caller is None else caller.parent)
        self._pictures = NO_PICTURES
        self._spent = UsageCount()  # of the run under way
        facts = RunFacts(deps, lambda: self._spent.total, lambda: self.messages)
        asker = asker_of(user)
        self._tools = (
            ToolRun(asker=asker, facts=facts)
            if caller is None
            else caller.of_sub_agent(asker, facts)
        )
        self._instructions = instructions
        self._hooks: HookRun | None = None
        """Of the run under way."""
        self._end: End | None = None
        """How a hook ended the run."""
        self._is_told = bool(messages) and messages[0]["role"] == "system"
        self._dispatcher = Dispatcher(registry, self._tools)
        self._transcript = Transcript(messages)
        self._engine_session: EngineSession | None = None
        self._opened_on: tuple[Engine, SessionSpec]
        """Of the engine's session, once there is one."""
        self._budget: Budget | None = None
        """Of the run under way."""
        self._held_tokens = 0
        """The tokens of the conversation that the engine's session holds."""
        self._asked = 0  # how many messages began the engine session
        self._heard = False
        self._busy = False
        self._closed = False

    @property
    def id(self) -> str:
        """The name by which sessions of sub-agents call this one their parent."""
        return self._tools.scope.session_id

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history in OpenAI's form, without the turn under way."""
        return self._transcript.messages

    @property
    def usage(self) -> Usage:
        """Totals over all ended turns of the session, including those of runs that ended early."""
        return self._transcript.total

    @property
    def pending(self) -> tuple[Pending, ...]:
        """The items that wait for a person's answer or approval, the oldest first."""
        session = self.id
        return tuple(item for item in self._settings.people.waited_for if item.session == session)

    async def answer(self, item_id: str, text: str) -> None:
        """Answer a question among `pending`; raise `UsageError` if that fails."""
        await self._settle(lambda people: people.answer(item_id, text))

    async def approve(self, item_id: str) -> None:
        """Approve a call among `pending`; raise `UsageError` if that fails."""
        await self._settle(lambda people: people.decide(item_id, True))

    async def deny(self, item_id: str, reason: str = "") -> None:
        """Deny a call among `pending`; the model sees `reason`. Raise `UsageError` on failure."""
        await self._settle(lambda people: people.decide(item_id, False, reason))

    async def run(self, prompt: Prompt) -> Answer[T]:
        """Send a prompt and return the answer.

        Raises `LimitReached`, `ContextOverflow`, `EngineFailed` and `InvalidOutput`. Raises
        `UsageError` if a run is under way or the session is closed, and for media that the model
        does not take.
        """
        fold: RunFold[Never] = RunFold()
        output: Any = None
        async with aclosing(self._events(prompt, drafts=False)) as events:
            async for event in events:
                fold.take(event)
                if isinstance(event, OutputWritten):
                    output = event.output
        if (ended := fold.ended) is None or ended.reason == "calls":
            raise EngineFailed("the run ended without an answer")
        calls = tuple((each.call, each.result) for each in fold.returned)
        made = cast(T, ended.text if self._settings.output is None else output)
        return Answer(
            ended.text,
            ended.reason,
            ended.usage,
            calls,
            self.messages,
            made,
            ended.total_usage,
            ended.cost,
        )

    async def stream(self, prompt: Prompt) -> AsyncGenerator[RunEvent | OutputWritten[T], None]:
        """Send a prompt and yield the run's events; `RunEnded` comes last.

        With an output type, `OutputWritten` tells what is written of it. To leave the loop early,
        wrap the call in `contextlib.aclosing`, which cancels the run at once. Raises the errors
        of `run`.
        """
        async with aclosing(self._events(prompt, drafts=True)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """Cancel the tools and close the engine session. Idempotent.

        The engine remembers the answers: another session that begins with `messages` continues
        from their tokens.
        """
        self._closed = True
        try:
            await self._dispatcher.aclose()
            await self._remember()
        finally:
            await self._close_engine_session()

    async def _settle(self, say: Callable[[People], Awaitable[object]]) -> None:
        try:
            await say(self._settings.people)
        except PeopleError as error:
            raise UsageError(str(error)) from None

    def _claim(self) -> None:
        if self._closed:
            raise UsageError("this session is closed: open another one")
        if self._busy:
            raise UsageError(
                "this session has a run under way: await its end, or open a second session"
            )
        self._busy = True

    async def _events(self, prompt: Prompt, drafts: bool) -> AsyncGenerator[RunEvent, None]:
        """Yield a run's events; with `drafts`, the output while it is written too."""
        self._claim()
        self._budget, self._spent, self._end = None, UsageCount(), None
        form = self._settings.output
        if self._settings.hooks:
            self._hooks = HookRun(self._settings.hooks, self._registry, self._context)
        try:
            await self._instruct()
            made = self._kept(prompt) if form is None else self._typed(prompt, form, drafts)
            async with aclosing(made) as events:
                async for event in events:
                    if isinstance(event, RunEnded) and self._budget is not None:
                        total, cost = self._budget.usage, self._budget.cost
                        event = replace(event, total_usage=total, cost=cost)
                    yield event
        finally:
            self._busy = False

    def _context(self) -> Context[Any]:
        """Return the context of functions that are no tools."""
        facts = self._tools.facts
        return Context(facts.deps, session=self.id, facts=facts)

    async def _instruct(self) -> None:
        """Begin the history with the agent's instructions, once."""
        if not self._is_told:
            told = await self._instructions.told(self._context())
            if told is not None:
                self._transcript.lead({"role": "system", "content": told})
            self._is_told = True

    async def _typed(
        self, prompt: Prompt, form: "OutputForm[Any]", drafts: bool
    ) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run whose answer has a form.

        The model is told what does not fit, and tries again. All tries share the run's limits.
        """
        from caesura.runtime.sdk.output import Drafts, Unfit, json_so_far  # needed here alone

        usage = Usage()
        for left in reversed(range(form.tries)):
            ended, draft = None, Drafts(form) if drafts else None
            async with aclosing(self._kept(prompt)) as events:
                async for event in events:
                    if isinstance(event, RunEnded):
                        ended = event
                        continue
                    yield event
                    if draft is not None and (written := draft.take(event)) is not None:
                        yield written
            if ended is not None and self._end is not None:
                answer = self._end.answer
                yield OutputWritten(answer, answer, complete=True)
                yield replace(ended, usage=usage + ended.usage)
                return
            if ended is None or self._budget is None:
                raise EngineFailed("the run ended without an answer")
            usage += ended.usage
            if ended.reason != "stop":
                raise InvalidOutput(
                    f"a token limit cut the answer behind {ended.usage.completion_tokens} tokens,"
                    " before its output was complete: raise max_tokens, or ask for less",
                    ended.text,
                )
            try:
                with handing(self._context()):
                    output = await self._budget.wait(form.read(ended.text))
            except Unfit as error:
                if not left:
                    raise InvalidOutput(
                        f"the answer did not fit in {form.tries} tries: {error}", ended.text
                    ) from error
                yield OutputRefused(ended.text, str(error))
                prompt = form.refusal(error)
                continue
            yield OutputWritten(json_so_far(ended.text), output, complete=True)
            yield replace(ended, usage=usage)
            return

    async def _kept(self, prompt: Prompt) -> AsyncGenerator[RunEvent, None]:
        """Yield the events up to an answer that no hook refuses."""
        usage = Usage()
        for left in reversed(range(self._settings.tries)):
            ended = None
            async with aclosing(self._part(prompt)) as events:
                async for event in events:
                    if isinstance(event, RunEnded):
                        ended = event
                    else:
                        yield event
            if ended is None:
                return
            usage += ended.usage
            refusal = None if self._hooks is None else self._hooks.refusal
            if refusal is None:
                yield replace(ended, usage=usage)
                return
            if not left:
                tries = self._settings.tries
                raise InvalidOutput(
                    f"hooks refused all answers in {tries} tries: {refusal}", ended.text
                )
            yield OutputRefused(ended.text, refusal)
            prompt = refusal

    async def _part(self, prompt: Prompt) -> AsyncGenerator[RunEvent, None]:
        """Send a message and yield the events up to its answer; leave a clear history."""
        before, spent = len(self.messages), self._spent.total
        self._heard = ended = False
        try:
            async with aclosing(await self._begun(prompt)) as events:
                async for event in events:
                    for acted in self._acts():
                        yield acted
                    self._note(event)
                    ended = isinstance(event, RunEnded)
                    yield event
        except RunEndedByHook as ending:
            for acted in self._acts():
                yield acted
            self._end, self._heard = ending.end, True
            self._transcript.conclude(ending.text)
            yield RunEnded("stop", ending.text, self._spent.total - spent)
        except Exception as error:
            if self._closed:
                raise UsageError(
                    "this session was closed while a run was under way: await the run's end first"
                ) from error
            raise
        finally:
            await self._leave(before, ended)

    def _acts(self) -> list[HookActed]:
        """Return what hooks have done."""
        return [] if self._hooks is None else self._hooks.acts()

    async def _begun(self, prompt: Prompt) -> AsyncGenerator[RunEvent, None]:
        """Begin a run, in the engine's session or in a new one, and return its events."""
        content = _content(prompt)
        if self._hooks is not None and self._budget is None:  # not for an answer's next try
            try:
                content = _content(await self._hooks.before_run(prompt))
            except RunEndedByHook:
                self._transcript.add({"role": "user", "content": content})
                raise
        self._transcript.add({"role": "user", "content": content})
        feed: Sequence[Message] = self.messages[-1:]
        if self._engine_session is None:
            feed = self.messages
            self._engine_session = await self._opened(feed)
        engine, spec = self._opened_on
        settings = self._settings
        plan = Plan(
            messages=tuple(await settings.media.inlined(feed, engine.media_rules)),
            conversation=digest(self.messages),
            user=None,
            spec=spec,
            sampling=settings.sampling,
            registry=self._registry,
            client_tools=frozenset(),
            limits=bounded(settings.limits, engine.max_answer_tokens),
        )
        if self._closed:
            raise EngineFailed("the session was closed before its run had begun")
        trace = None
        if settings.tracing is not None:
            trace = settings.tracing.run(engine.model, self._name, self.id)
        context = RunContext.of(engine, plan, self._tools, self._pictures, trace)
        if self._budget is None:
            shared = None if self._caller is None else self._caller.run.budget
            self._budget = Budget(plan.limits, time.monotonic, shared)
        self._budget.held_tokens = self._held_tokens
        tools = replace(context.tools, budget=self._budget, hooks=self._hooks)
        context = replace(context, budget=self._budget, tools=tools)
        # Its tools keep their resources for the session.
        self._dispatcher = context.dispatcher()
        session = self._engine_session
        if self._hooks is not None:
            session = HookedSession(session, self._hooks)
        return traced(session, plan.messages, self._dispatcher, context)

    async def _opened(self, history: Sequence[Message]) -> EngineSession:
        """Open a session of the engine, whose first run sends the whole history."""
        engine = await self._engine()
        spec = SessionSpec(
            self._registry.specs(),
            self._settings.sampling,
            pauses=pauses_of(self._registry),
            owner=self._tools.asker,
            cache_salt=self._tools.cache_salt,
            origin=Origin(self._tools.tenant, self.id, self._parent),
        )
        self._opened_on = engine, spec
        self._held_tokens = 0
        self._asked = len(history)
        self._pictures = Pictures(engine.media_rules, count_pictures(history))
        return engine.open(spec)

    def _note(self, event: RunEvent) -> None:
        self._heard = True
        self._spent.take(event)
        self._transcript.take(event)
        if isinstance(event, ModelChanged):
            self._held_tokens = 0
        if isinstance(event, TurnEnded):
            self._held_tokens += event.prompt_tokens + event.completion_tokens

    async def _leave(self, before: int, ended: bool) -> None:
        """Complete the history, and close an engine session that differs from it."""
        if not self._heard:
            self._transcript.rewind(before)
        was_cut = self._transcript.settle()
        if was_cut or not ended:
            await self._close_engine_session()

    async def _remember(self) -> None:
        """Let a later session continue from the tokens, unless a run is under way."""
        added = self.messages[self._asked :]
        if self._engine_session is not None and not self._busy and added:
            await self._engine_session.remember(added)

    async def _close_engine_session(self) -> None:
        session, self._engine_session = self._engine_session, None
        if session is not None:
            # Shielded, since a second cancellation must not leave the session in the engine.
            await asyncio.shield(session.close())

    def __repr__(self) -> str:
        state = "closed" if self._closed else "running" if self._busy else "idle"
        return f"<Session: {len(self.messages)} messages, {self.usage.turns} turns, {state}>"


def _content(prompt: Prompt) -> Content:
    """Return the content of a prompt's message; raise `UsageError` for wrong parts."""
    if isinstance(prompt, bytes) or not isinstance(prompt, Sequence):
        raise UsageError(
            f"the prompt must be a text or a list of parts, got {type(prompt).__name__}"
        )
    roles = [part["role"] for part in prompt if isinstance(part, Mapping) and "role" in part]
    if roles:
        raise UsageError(
            f"the prompt is a list of messages, with the roles {roles[:5]}: open"
            " agent.session(messages) with the earlier ones, and run it on the last one's content"
        )
    try:
        return content_of(prompt if isinstance(prompt, str) else list(prompt))
    except ValueError as error:
        raise UsageError(f"the prompt: {error}") from None
