"""Hooks of agents: what stands before and after model turns and calls, and decides about them."""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from caesura.intercept.calls.events import CallFinished, Event, ModelChanged, TextDelta, TurnEnded
from caesura.runtime.engine import EngineSession, SessionAround
from caesura.runtime.errors import UsageError
from caesura.runtime.events import HookActed
from caesura.scheduler.messages import CallRule, Message, Sampling
from caesura.tools.context import CallContext
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall, ToolResult, error_text, text_of
from caesura.tools.run_view import Context, Deps

V = TypeVar("V")
Prompt = str | Sequence[Mapping[str, Any]]
"""A text, or parts of a message's content in OpenAI's form, with pictures or sounds."""
Reopen = Callable[[], Awaitable[tuple[EngineSession, Sequence[Message]]]]
Maybe: TypeAlias = V | Awaitable[V | None] | None
"""What a hook returns, or the coroutine of an async one; None lets things go on."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A hook refuses a call, its result or an answer; the model is told the text."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """A hook ends the run with this answer. For a typed agent it is the output."""

    answer: Any


@dataclass(frozen=True, slots=True)
class WrittenTurn:
    """A turn that the model has written."""

    text: str
    calls: tuple[ToolCall, ...]
    ended: TurnEnded


class Hooks(Generic[Deps]):
    """What an agent asks before and after its model's turns and its calls.

        class Guard(Hooks[Shop]):
            def before_call(self, context, arguments):
                if context.call.name == "refund" and arguments["euros"] > 50:
                    return Refuse("Refunds over 50 euros need a person.")

        agent = Agent(tools=[refund], hooks=[Guard()])

    A subclass overrides the methods that it needs, each sync or async. A sync one runs in the event
    loop and must not block. None lets things go on. `End` ends the run with an answer, and an
    exception ends it with that error. Several hooks are asked in the agent's order. Each sees what
    those before it have changed, and the first that refuses or ends has the last word. All
    sessions of the agent share a hook, so what belongs to one run is kept in `context.deps`.

    What the model has written stands: no hook can change it. Its tokens are in the KV cache. Hooks
    change what is appended: the prompt, and results. Arguments are changed for the tool alone.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        """Raise TypeError for a method that is named like a hook and is none."""
        super().__init_subclass__(**more)
        for name in vars(cls):
            if name.startswith(("before_", "after_", "on_")) and not hasattr(Hooks, name):
                known = ", ".join(METHODS)
                raise TypeError(f"{cls.__name__}.{name} is no hook: there are {known}")

    def before_run(self, context: Context[Deps], prompt: Prompt) -> Maybe[Prompt | End]:
        """Look at a prompt, before the model is asked; return another in its place."""

    def tools(self, context: Context[Deps]) -> Maybe[Iterable[str]]:
        """Return the names of the tools that the next turn may call; None allows all.

        The model is shown the same tools in every turn, so that the KV cache stays. The grammar
        forbids the others. Where an engine has no such grammar, their calls are refused.
        """

    def before_turn(self, context: Context[Deps], messages: Sequence[Message]) -> Maybe[End]:
        """Look at the messages that the next turn of the model answers."""

    def on_event(self, context: Context[Deps], event: Event) -> Maybe[End]:
        """Look at an event of a turn before anyone else does. `End` stops the model at once.

        What was written of the turn is not kept in the history.
        """

    def after_turn(self, context: Context[Deps], turn: WrittenTurn) -> Maybe[Refuse | End]:
        """Look at a whole turn. A refused answer is written again, up to `output_retries` times.

        The calls of a turn have begun before it ends: `before_call` refuses them.
        """

    def before_call(
        self, context: Context[Deps], arguments: dict[str, Any]
    ) -> Maybe[dict[str, Any] | Refuse | End]:
        """Look at a call, `context.call`, before its tool runs; return other arguments for it.

        It comes before a person is asked to approve the call. Arguments that do not fit the tool
        never come here.
        """

    def after_call(self, context: Context[Deps], result: ToolResult) -> Maybe[str | Refuse | End]:
        """Look at the result of a call, an error too; return another text for the model."""


METHODS = tuple(name for name in vars(Hooks) if not name.startswith("_"))
"""The names of the methods that a hook may have."""


class RunEndedByHook(Exception):
    """A hook ended the run."""

    def __init__(self, end: End) -> None:
        super().__init__("a hook ended the run")
        self.end = end

    @property
    def text(self) -> str:
        """The answer as a text."""
        return text_of(self.end.answer)


def checked(hooks: Iterable[Any]) -> tuple[Hooks[Any], ...]:
    """Return an agent's hooks. Raises `UsageError` for anything else."""
    if isinstance(hooks, Hooks) or not isinstance(hooks, Iterable):
        raise UsageError(f"hooks is a list, got {type(hooks).__name__}: write hooks=[...]")
    made = tuple(hooks)
    for each in made:
        if not isinstance(each, Hooks):
            raise UsageError(
                f"{each!r} is no hook: write a subclass of caesura.Hooks, and give an instance"
            )
    return made


class HookRun:
    """The hooks of one run. Its calls are made through it, and so are the model's turns."""

    def __init__(
        self, hooks: Sequence[Hooks[Any]], registry: Registry, context: Callable[[], Context[Any]]
    ) -> None:
        self._of = {
            name: [h for h in hooks if getattr(type(h), name) is not getattr(Hooks, name)]
            for name in METHODS
        }
        self._registry = registry
        self._context = context
        self._acted: list[HookActed] = []
        self._allowed: frozenset[str] | None = None
        """The tools that the turn may call; None: all."""
        self.grammars = True
        """Whether the engine can be told which tools a turn may call."""
        self.restricts = False
        """Whether the turn under way may not call all tools."""
        self.refusal: str | None = None
        """What the model is told about its answer, if a hook refused it."""

    def acts(self) -> list[HookActed]:
        """Return what hooks have done since the last time."""
        acted, self._acted = self._acted, []
        return acted

    async def before_run(self, prompt: Prompt) -> Prompt:
        """Return the prompt that the run begins with. Raises `RunEndedByHook`."""
        for each in self._of["before_run"]:
            said = await self._said(each, "before_run", self._context(), prompt)
            if said is None:
                continue
            if not isinstance(said, str | Sequence):
                raise _wrong(each, "before_run", said, "a prompt, End or None")
            if said != prompt:
                self._act(each, "before_run", "changed", text_of(said))
            prompt = said
        return prompt

    async def before_turn(self, messages: Sequence[Message]) -> None:
        """Ask about a turn that begins, and which tools it may call. Raises `RunEndedByHook`."""
        self.refusal = None
        for each in self._of["before_turn"]:
            said = await self._said(each, "before_turn", self._context(), messages)
            if said is not None:
                raise _wrong(each, "before_turn", said, "End or None")
        self._allowed = None
        for each in self._of["tools"]:
            names = await self._said(each, "tools", self._context())
            if names is not None:
                self._allow(each, names)
        self.restricts = self._allowed is not None and len(self._allowed) < len(self._registry)

    def _allow(self, hook: Hooks[Any], names: Any) -> None:
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise _wrong(hook, "tools", names, "names of tools or None")
        allowed = frozenset(names)
        for name in sorted(allowed, key=str):
            if name not in self._registry:
                unknown = self._registry.unknown(str(name))
                raise UsageError(f"{type(hook).__name__}.tools allows an {unknown}")
        self._allowed = allowed if self._allowed is None else self._allowed & allowed

    def sampled(self, sampling: Sampling | None) -> Sampling | None:
        """Return the settings of the turn, whose grammar forbids the other tools."""
        if not (self.restricts and self.grammars) or sampling is None or self._allowed is None:
            return sampling
        rule = sampling.calls or CallRule()
        given = self._registry.names if rule.names is None else rule.names
        names = tuple(name for name in given if name in self._allowed)
        return replace(sampling, calls=replace(rule, names=names))

    async def on_event(self, event: Event) -> None:
        """Ask about an event. Raises `RunEndedByHook`."""
        for each in self._of["on_event"]:
            said = await self._said(each, "on_event", self._context(), event)
            if said is not None:
                raise _wrong(each, "on_event", said, "End or None")

    async def after_turn(self, turn: WrittenTurn) -> None:
        """Ask about a whole turn. Raises `RunEndedByHook`."""
        for each in self._of["after_turn"]:
            said = await self._said(each, "after_turn", self._context(), turn)
            if said is None:
                continue
            if not isinstance(said, Refuse):
                raise _wrong(each, "after_turn", said, "Refuse, End or None")
            if turn.ended.reason == "call":
                raise UsageError(
                    f"{type(each).__name__}.after_turn refused a turn with calls, which have"
                    " begun: refuse them in before_call"
                )
            self._act(each, "after_turn", "refused", said.text)
            self.refusal = said.text
            return

    async def before_call(
        self, context: CallContext, arguments: dict[str, Any]
    ) -> dict[str, Any] | str | None:
        """Return other arguments, the text of a refusal, or None. Raises `RunEndedByHook`."""
        name, changed = context.call.name, False
        if self._allowed is not None and name not in self._allowed:
            allowed = ", ".join(each for each in self._registry.names if each in self._allowed)
            text = f"{name} may not be called now; what may be: {allowed or 'no tool'}"
            self._note(HookActed("tools", "refused", text, context.call), context)
            return text
        for each in self._of["before_call"]:
            said = await self._said(each, "before_call", context.view(), arguments, call=context)
            if said is None:
                continue
            if isinstance(said, Refuse):
                self._act(each, "before_call", "refused", said.text, context)
                return said.text
            if not isinstance(said, dict):
                raise _wrong(each, "before_call", said, "a dict of arguments, Refuse, End or None")
            if said != arguments:
                self._act(each, "before_call", "changed", text_of(said), context)
                arguments, changed = said, True
        return arguments if changed else None

    async def after_call(self, context: CallContext, result: ToolResult) -> ToolResult:
        """Return the result that the model gets. Raises `RunEndedByHook`."""
        for each in self._of["after_call"]:
            said = await self._said(each, "after_call", context.view(), result, call=context)
            if said is None:
                continue
            if isinstance(said, Refuse):
                self._act(each, "after_call", "refused", said.text, context)
                return replace(result, content=error_text(said.text), error="refused")
            if not isinstance(said, str):
                raise _wrong(each, "after_call", said, "a text, Refuse, End or None")
            if said != result.content:
                self._act(each, "after_call", "changed", said, context)
            result = replace(result, content=said)
        return result

    async def _said(
        self, hook: Hooks[Any], name: str, *given: Any, call: CallContext | None = None
    ) -> Any:
        """Return what a hook says. Raises `RunEndedByHook`, and the hook's own errors."""
        try:
            said = getattr(hook, name)(*given)
            if inspect.isawaitable(said):
                said = await said
        except Exception as error:
            error.add_note(f"raised by the hook {type(hook).__name__}.{name}")
            raise
        if isinstance(said, End):
            ending = RunEndedByHook(said)
            self._act(hook, name, "ended", ending.text, call)
            raise ending
        return said

    def _act(
        self,
        hook: Hooks[Any],
        name: str,
        action: Literal["refused", "changed", "ended"],
        text: str,
        call: CallContext | None = None,
    ) -> None:
        named = f"{type(hook).__name__}.{name}"
        self._note(HookActed(named, action, text, None if call is None else call.call), call)

    def _note(self, acted: HookActed, call: CallContext | None) -> None:
        self._acted.append(acted)
        if call is not None:
            call.mark("hook", hook=acted.hook, action=acted.action)


class HookedSession(SessionAround):
    """An engine's session whose turns go through hooks.

    `reopen` closes it, and returns another one with the messages of the whole conversation.
    """

    def __init__(self, session: EngineSession, hooks: HookRun, reopen: Reopen) -> None:
        super().__init__(session)
        self._hooks = hooks
        self._reopen = reopen

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield a turn's events; see `EngineSession.turn`. Raises `RunEndedByHook` too.

        An engine that has no grammar for the tools that the turn may call is asked without it.
        """
        hooks, has_begun = self._hooks, False
        await hooks.before_turn(messages)
        while True:
            try:
                async with aclosing(self._turn(messages, hooks.sampled(sampling))) as events:
                    async for event in events:
                        has_begun = True
                        yield event
                return
            except UsageError:
                if has_begun or not (hooks.restricts and hooks.grammars):
                    raise
                hooks.grammars = False
                self._session, messages = await self._reopen()

    async def _turn(
        self, messages: Sequence[Message], sampling: Sampling | None
    ) -> AsyncGenerator[Event, None]:
        """Yield a turn's events behind what the hooks say to each."""
        text: list[str] = []
        calls: list[ToolCall] = []
        async with aclosing(self._session.turn(messages, sampling)) as events:
            async for event in events:
                await self._hooks.on_event(event)
                match event:
                    case TextDelta():
                        text.append(event.text)
                    case ModelChanged():
                        text.clear()
                    case CallFinished():
                        calls.append(ToolCall(event.call_id, event.name, event.arguments))
                    case TurnEnded():
                        await self._hooks.after_turn(
                            WrittenTurn("".join(text), tuple(calls), event)
                        )
                    case _:
                        pass
                yield event


def _wrong(hook: Hooks[Any], name: str, said: object, wanted: str) -> UsageError:
    return UsageError(f"{type(hook).__name__}.{name} must return {wanted}, got {said!r}")
