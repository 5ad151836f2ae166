"""A conversation of an agent: several runs with one history, in one engine session."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Never, Self, cast, overload

from caesura.runtime.engine import Engine, EngineSession
from caesura.runtime.errors import EngineFailed, InvalidOutput, UsageError
from caesura.runtime.events import (
    HandedOff,
    HookActed,
    ModelChanged,
    OutputRefused,
    OutputWritten,
    RunEnded,
    RunEvent,
    T,
    ToolReturned,
    TurnEnded,
    Usage,
)
from caesura.runtime.run.context import Plan, RunContext, pauses_of
from caesura.runtime.run.fold import RunFold, UsageCount, asker_of, digest
from caesura.runtime.run.limits import Budget, bounded
from caesura.runtime.run.loop import traced
from caesura.runtime.run.media import NO_PICTURES, Pictures, count_pictures
from caesura.runtime.run.steering import LiveSession, Steering
from caesura.runtime.sdk.handoffs import Handing
from caesura.runtime.sdk.hooks import End, HookedSession, HookRun, Prompt, RunEndedByHook
from caesura.runtime.sdk.memory import Begin, Memory
from caesura.runtime.sdk.record import SavedRun, made_for
from caesura.runtime.sdk.settings import About, Answer, SessionSettings, prompt_content
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.programs import Origin
from caesura.tools.closing import AsyncClosing
from caesura.tools.context import Scope, ToolRun, calling
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.people import Pending, People, PeopleError
from caesura.tools.registry import Registry
from caesura.tools.run_view import Context, RunFacts, handing

if TYPE_CHECKING:
    from caesura.runtime.sdk.output import OutputForm
    from caesura.runtime.trajectories.trajectory import Trajectory


class Session(LiveSession, AsyncClosing, Generic[T]):
    """A conversation, from `Agent.session()`; close it, or use it in `async with`.

    A session has one run at a time. The error of a failing tool goes to the model, and the run
    continues. A run may end early: cancelled, at a limit, or with an error. Its text then stays
    in `messages`, with its open calls answered as cancelled, and the next run opens a new engine
    session with that history. A run that ended before the model's first output leaves no trace.

    A session in a store is read at the begin of `async with`, or at its first run, and saved after
    every turn. A run goes on later, by `run()`, if its process died, if the session was closed
    meanwhile, or if it was cancelled while it waited for a person.
    """

    def __init__(
        self,
        engine: Callable[[], Awaitable[Engine]],
        registry: Registry,
        settings: SessionSettings,
        about: About,
        begin: Begin,
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._settings = settings
        self._about = about
        self._caller = calling()
        """The call of a tool that opened the session, whose run has its tokens counted too."""
        caller = None if self._caller is None else self._caller.run
        self._parent = about.parent or ("" if caller is None else caller.parent)
        self._pictures = NO_PICTURES
        self._spent = UsageCount()  # of the run under way
        facts = RunFacts(about.deps, lambda: self._spent.total, lambda: self._memory.messages)
        asker = asker_of(about.user or begin.owner)
        tools = ToolRun(asker=asker, facts=facts)
        tools = tools if caller is None else caller.of_sub_agent(asker, facts)
        self._tools = replace(tools, scope=Scope(begin.id))
        if begin.recorder is None and tools.record is not None:
            begin = replace(begin, recorder=tools.record(begin.id, self._parent))
        self._hooks: HookRun | None = None
        """Of the run under way."""
        self._handing = Handing({})
        self._end: End | None = None
        """How a hook ended the run."""
        self._is_told = False
        self._dispatcher = Dispatcher(registry, self._tools)
        self._memory = Memory(begin, settings.people, trajectory=settings.trajectories)
        self._engine_session: EngineSession | None = None
        self._opened_on: tuple[Engine, SessionSpec]
        """Of the engine's session, once there is one."""
        self._budget: Budget | None = None
        """Of the run under way."""
        self._held_tokens = 0
        """The tokens of the conversation that the engine's session holds."""
        self._asked = 0  # how many messages began the engine session
        self._fed = 0  # how many messages the engine session knows
        self._unended: SavedRun | None = None
        """The run of an earlier process that this run goes on with."""
        self._heard = False
        self._busy = False
        self._closed = False

    @property
    def id(self) -> str:
        """The name by which a store keeps the session, and sub-agents call it their parent."""
        return self._tools.scope.session_id

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history in OpenAI's form, without the turn under way.

        Assign an edited one to go on from there: the tokens before the first prompt whose turn
        differs are kept. Raises `UsageError` for a session that was not read from its store yet,
        and an assignment does while a run is under way.
        """
        self._memory.check_read()
        return self._memory.messages

    @messages.setter
    def messages(self, messages: Sequence[Message]) -> None:
        self._check_idle("edited")
        self._memory.edit(messages)

    @property
    def usage(self) -> Usage:
        """Totals over all ended turns of the session, including those of runs that ended early."""
        return self._memory.usage

    @property
    def is_under_way(self) -> bool:
        """Whether a run has not ended: it is at work, or `run()` goes on with it."""
        self._memory.check_read()
        return self._busy or self._memory.record.under_way is not None

    @property
    def trouble(self) -> str | None:
        """Why the session cannot be saved now; None: it can, or has no store."""
        return self._memory.trouble

    @property
    def pending(self) -> tuple[Pending, ...]:
        """The items that wait for a person's answer or approval, the oldest first."""
        found = (*self._memory.left, *self._settings.people.waited_for)
        items = {each.id: each for each in found}
        return tuple(item for item in items.values() if item.session == self.id)

    async def answer(self, item_id: str, text: str) -> None:
        """Answer a question among `pending`; raise `UsageError` if that fails."""
        await self._settle(item_id, lambda people: people.answer(item_id, text))

    async def approve(self, item_id: str) -> None:
        """Approve a call among `pending`; raise `UsageError` if that fails."""
        await self._settle(item_id, lambda people: people.decide(item_id, True))

    async def deny(self, item_id: str, reason: str = "") -> None:
        """Deny a call among `pending`; the model sees `reason`. Raise `UsageError` on failure."""
        await self._settle(item_id, lambda people: people.decide(item_id, False, reason))

    def state(self) -> str:
        """Return the session as JSON text, for `agent.session(state=...)` in any process.

        It holds the tokens, and the run under way if there is one, which goes on there.
        """
        self._memory.check_read()
        return self._memory.state()

    async def trajectory(self) -> "Trajectory":
        """Return all tokens that the session has computed, as a tree, also during a run.

        They include what was rewound or edited away. Raises `UsageError` for a session of an agent
        without `trajectories`. It is also raised where tokens are not known: behind pictures or
        sounds, and where another model went on.
        """
        await self._memory.read()
        return self._memory.trajectory()

    @overload
    def fork(self, n: None = None, *, sampling: Sampling | None = None) -> "Session[T]": ...

    @overload
    def fork(self, n: int, *, sampling: Sampling | None = None) -> tuple["Session[T]", ...]: ...

    def fork(
        self, n: int | None = None, *, sampling: Sampling | None = None
    ) -> "Session[T] | tuple[Session[T], ...]":
        """Return a session that goes on from here by itself, or `n` of them.

        A branch begins with the same tokens, which the engine has in its prefix cache, and has the
        same tools; `sampling` replaces its settings. Where those have a seed, each branch has
        another one. Branches of a session in a store are kept there too once they are opened. For
        other tools, give `state()` to a session of another agent. While a run is at work, such as
        at its tools, a branch's `run()` goes on with it, and makes again the calls without a
        result. Raises `UsageError` for an unended run that is not, and for a number below 1.
        """
        if not (self._busy and self._memory.has_tokens_under_way):
            self._check_idle("forked")
        if n is not None and (type(n) is not int or n < 1):
            raise UsageError(f"the number of branches is a whole number from 1, got {n!r}")
        branches = tuple(
            Session[T](self._engine, self._registry, each, self._about, self._memory.branch())
            for each in self._settings.of_branches(n or 1, sampling)
        )
        return branches[0] if n is None else branches

    def rewind(self, turns: int = 1) -> None:
        """Forget the last prompts and all that followed them; what stays keeps its tokens.

        A run that has not ended counts. Raises `UsageError` for more turns than there are, and
        while a run is at work.
        """
        self._memory.check_read()
        if self._busy:
            raise UsageError("a run is at work in this session: await its end before a rewind")
        self._memory.rewind(turns)

    async def run(self, prompt: Prompt | None = None) -> Answer[T]:
        """Send a prompt and return the answer.

        Without a prompt, or with the same one again, it goes on with a run that has not ended.
        What was decoded is not decoded again, and no call that has a result is made again. A call
        that had begun without one, and is not safe to repeat, is left to a person.

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
        said = (ended.text, ended.reason, ended.usage, calls, self._memory.messages, made)
        return Answer(*said, ended.total_usage, ended.cost, ended.agent)

    async def stream(
        self, prompt: Prompt | None = None
    ) -> AsyncGenerator[RunEvent | OutputWritten[T], None]:
        """Send a prompt and yield the run's events; `RunEnded` comes last.

        Without a prompt it goes on as `run` does, and tells that run's events from its begin.

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
        from their tokens. A run under way stays in the session's store, and goes on later.
        """
        self._closed = True
        try:
            if self._busy and self._memory.is_kept:
                self._memory.keeper.freeze()
                await self._dispatcher.break_off(EngineFailed("the session was closed"))
            await self._dispatcher.aclose()
            await self._remember()
        finally:
            try:
                await self._close_engine_session()
            finally:
                await self._memory.close()

    async def __aenter__(self) -> Self:
        """Read the session from its store, if it has one. Raises `UsageError`."""
        await self._memory.read()
        return self

    def _check_idle(self, what: str) -> None:
        if self.is_under_way:
            raise UsageError(
                f"a run of this session has not ended, so that it cannot be {what}: await its end,"
                " go on with it by session.run(), or drop it by session.rewind()"
            )

    async def _settle(self, item_id: str, say: Callable[[People], Awaitable[object]]) -> None:
        try:
            await say(self._settings.people)
            self._memory.forget_left(item_id)
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

    async def _events(self, prompt: Prompt | None, drafts: bool) -> AsyncGenerator[RunEvent, None]:
        """Yield a run's events; with `drafts`, the output while it is written too."""
        self._claim()
        self._budget, self._spent, self._end = None, UsageCount(), None
        form = self._settings.output
        self._prepare()
        try:
            await self._memory.read()
            content = None if prompt is None else prompt_content(prompt)
            self._unended = self._memory.unended(content)
            prompt = "" if prompt is None else prompt
            await self._instruct()
            made = self._kept(prompt) if form is None else self._typed(prompt, form, drafts)
            async with aclosing(made) as events:
                async for event in events:
                    if isinstance(event, RunEnded) and self._budget is not None:
                        total, cost = self._budget.usage, self._budget.cost
                        who = self._about.name
                        event = replace(event, total_usage=total, cost=cost, agent=who)
                    yield event
        finally:
            self._busy, self._unended, self._steering = False, None, None

    def _prepare(self) -> None:
        """Prepare what watches over a run of the agent."""
        hooks, before = self._settings.hooks, self._hooks
        self._hooks = HookRun(hooks, self._registry, self._context) if hooks else None
        if self._hooks is not None and before is not None:
            self._hooks.grammars = before.grammars
        self._handing = Handing(self._settings.roles)

    async def _take_over(self) -> HandedOff | None:
        """Let another agent go on, if the conversation was passed to one."""
        if (call := self._handing.call) is None:
            return None
        role = self._handing.role()
        self._engine, self._registry, self._settings = role.engine, role.registry, role.settings
        self._about = replace(self._about, name=role.name, instructions=role.instructions)
        self._prepare()
        self._memory.instruct(await role.instructions.told(self._context()))
        return HandedOff(role.name, call)

    def _context(self) -> Context[Any]:
        """Return the context of functions that are no tools."""
        facts = self._tools.facts
        return Context(facts.deps, session=self.id, facts=facts)

    async def _instruct(self) -> None:
        """Begin the history with the agent's instructions, once."""
        if self._is_told:
            return
        memory, instructions = self._memory, self._about.instructions
        if not memory.is_told:
            told = await instructions.told(self._context())
            if told is not None:
                memory.transcript.lead({"role": "system", "content": told})
        elif memory.is_continued and instructions.text is not None and self._unended is None:
            told = await instructions.told(self._context())
            if told is not None and told != memory.messages[0]["content"]:
                memory.instruct(told)
        self._is_told = True

    def _typed(
        self, prompt: Prompt, form: "OutputForm[Any]", drafts: bool
    ) -> AsyncGenerator[RunEvent, None]:
        """Return the events of a run whose answer has a form."""
        from caesura.runtime.sdk.output import answered  # needed here alone

        async def read(text: str) -> Any:
            if self._budget is None:
                raise EngineFailed("the run ended without an answer")
            with handing(self._context()):
                return await self._budget.wait(form.read(text))

        return answered(form, prompt, drafts, self._kept, read, lambda: self._end)

    async def _kept(self, prompt: Prompt) -> AsyncGenerator[RunEvent, None]:
        """Yield the events up to an answer that no hook refuses, of whoever answers in the end."""
        tries, spent, asked = self._settings.tries, self._spent.total, 1
        message: Prompt | None = prompt
        while True:
            ended = None
            async with aclosing(self._part(message)) as events:
                async for event in events:
                    if isinstance(event, RunEnded):
                        ended = event
                    else:
                        yield event
            if ended is None:
                if (handed := await self._take_over()) is None:
                    return
                yield handed
                message = None
                continue
            refusal = None if self._hooks is None else self._hooks.refusal
            if refusal is None:
                yield replace(ended, usage=self._spent.total - spent)
                return
            if asked == tries:
                raise InvalidOutput(
                    f"hooks refused all answers in {tries} tries: {refusal}", ended.text
                )
            yield OutputRefused(ended.text, refusal)
            message, asked = refusal, asked + 1

    async def _part(self, prompt: Prompt | None) -> AsyncGenerator[RunEvent, None]:
        """Send a message and yield the events up to its answer; leave a clear history.

        Without a message the history goes on where it is.
        """
        before, spent = len(self._memory.messages), self._spent.total
        before = -1 if self._unended is not None else before
        self._heard = ended = waits = False
        try:
            async with aclosing(await self._begun(prompt)) as events:
                async for event in events:
                    for acted in self._acts():
                        yield acted
                    self._note(event)
                    ended = isinstance(event, RunEnded)
                    yield event
                    if self._handing.call is not None and not self._memory.has_open_calls:
                        break  # another agent takes the next turn
        except RunEndedByHook as ending:
            for acted in self._acts():
                yield acted
            self._end, self._heard = ending.end, True
            self._memory.transcript.conclude(ending.text)
            yield RunEnded("stop", ending.text, self._spent.total - spent)
        except (asyncio.CancelledError, GeneratorExit):
            waits = self._waits_for_person()
            raise
        except Exception as error:
            if self._closed:
                later = " or go on with it by run() later" if self._memory.is_kept else ""
                raise UsageError(
                    "this session was closed while a run was under way: await the run's end"
                    f" first{later}"
                ) from error
            raise
        finally:
            await self._leave(before, ended, waits)

    def _acts(self) -> list[HookActed]:
        """Return what hooks have done."""
        return [] if self._hooks is None else self._hooks.acts()

    async def _begun(self, prompt: Prompt | None) -> AsyncGenerator[RunEvent, None]:
        """Begin a run, in the engine's session or in a new one, and return its events."""
        memory, run = self._memory, self._unended
        self._unended = None
        if run is None and prompt is not None:
            await self._ask(prompt)
        if memory.is_stale or run is not None:
            await self._close_engine_session()
            memory.is_stale = False
        if self._engine_session is None:
            await self._open(run)
        engine, spec = self._opened_on
        settings, feed = self._settings, memory.messages[self._fed :]
        plan = Plan(
            messages=tuple(await settings.media.inlined(feed, engine.media_rules)),
            conversation=digest(memory.messages),
            user=None,
            spec=spec,
            sampling=settings.sampling,
            registry=self._registry,
            client_tools=frozenset(),
            limits=bounded(settings.limits, engine.max_answer_tokens),
        )
        if self._closed:
            raise EngineFailed("the session was closed before its run had begun")
        about = (self._about.name, self.id, spec.origin)
        earlier = memory.messages[: self._fed]
        trace = settings.trace(engine, about, self._engine_session, earlier)
        context = RunContext.of(engine, plan, self._tools, self._pictures, trace)
        is_retry = self._budget is not None
        if self._budget is None:
            shared = None if self._caller is None else self._caller.run.budget
            self._budget = Budget(plan.limits, time.monotonic, shared)
        self._budget.held_tokens = self._held_tokens
        if memory.record.under_way is None:
            mark = made_for(engine.model, spec, memory.messages)
            memory.begin_run(mark, self._fed, is_retry=is_retry, of=run)
        log = memory.calls()
        tools = replace(context.tools, budget=self._budget, hooks=self._hooks, log=log)
        self._steering = Steering()
        context = replace(context, budget=self._budget, tools=tools, steering=self._steering)
        self._dispatcher = context.dispatcher()
        session = self._engine_session
        assert session is not None
        if self._hooks is not None:
            session = HookedSession(session, self._hooks, self._reopened)
        return traced(session, plan.messages, self._dispatcher, context)

    async def _ask(self, prompt: Prompt) -> None:
        """Add a prompt to the history, as hooks have it."""
        content = prompt_content(prompt)
        try:
            if self._hooks is not None and self._budget is None:  # not for an answer's next try
                content = prompt_content(await self._hooks.before_run(prompt))
        finally:
            self._memory.transcript.add({"role": "user", "content": content})

    async def _reopened(self) -> tuple[EngineSession, Sequence[Message]]:
        """Open the engine's session anew, and return it with what its next turn sends."""
        await self._close_engine_session()
        self._memory.keeper.lose_tokens()
        await self._open(None)
        session, (engine, _) = self._engine_session, self._opened_on
        assert session is not None
        if self._budget is not None:
            self._budget.held_tokens = self._held_tokens
        feed = self._memory.messages[self._fed :]
        return session, await self._settings.media.inlined(feed, engine.media_rules)

    async def _open(self, unended: SavedRun | None) -> None:
        """Open a session of the engine, which goes on from the tokens that are known."""
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
        opened = await self._memory.open(engine, spec, spec.sampling, self._registry, unended)
        self._engine_session, self._fed, self._asked = opened.session, opened.fed, opened.asked
        self._held_tokens = opened.held_tokens
        history = self._memory.messages
        self._pictures = Pictures(engine.media_rules, count_pictures(history))

    def _note(self, event: RunEvent) -> None:
        self._heard = True
        self._spent.take(event)
        self._memory.take(event)
        if isinstance(event, ToolReturned):
            self._handing.note(event)
        if isinstance(event, ModelChanged):
            self._held_tokens = 0
        if isinstance(event, TurnEnded):
            self._held_tokens += event.prompt_tokens + event.completion_tokens

    def _waits_for_person(self) -> bool:
        """Whether the run under way waits for a person, so that it goes on in another process."""
        tools = [self._registry.get(name) for name in self._memory.waiting_calls()]
        return any(tool is not None and (tool.approval or tool.waits_for_person) for tool in tools)

    async def _leave(self, before: int, ended: bool, waits: bool) -> None:
        """Complete the history, and close an engine session that differs from it.

        `before` is the number of messages before the run; -1 for one that was begun earlier.
        """
        memory = self._memory
        goes_on = not ended and (self._closed or waits) and memory.is_kept
        if goes_on or (before < 0 and not self._heard):
            memory.leave_under_way()
            await self._close_engine_session()
            return
        if not self._heard:
            memory.leave_no_trace(before)
        was_cut = memory.transcript.settle()
        if self._heard:
            memory.end_run(was_cut or not ended)
        self._fed = len(memory.messages)
        if was_cut or not ended:
            await self._close_engine_session()
        else:
            await memory.save()

    async def _remember(self) -> None:
        """Let a later session continue from the tokens, unless a run is under way."""
        added = self._memory.messages[self._asked :]
        if self._engine_session is not None and not (self._busy or self._memory.is_stale) and added:
            await self._engine_session.remember(added)

    async def _close_engine_session(self) -> None:
        session, self._engine_session = self._engine_session, None
        if session is not None:
            # Shielded, since a second cancellation must not leave the session in the engine.
            await asyncio.shield(session.close())

    def __repr__(self) -> str:
        state = "closed" if self._closed else "running" if self._busy else "idle"
        return (
            f"<Session: {len(self._memory.messages)} messages, {self.usage.turns} turns, {state}>"
        )
