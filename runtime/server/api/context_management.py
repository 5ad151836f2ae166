"""`context_management` of Anthropic's messages: what is cleared before the model reads a history.

Clients send the whole history each time, and nothing is kept of what was cleared. So it is decided
anew from the messages, for each answer in them as it was when it was asked for. What was cleared
then stays cleared, and the prompt goes on as it was between two clearings.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from caesura.runtime.engine import Engine
from caesura.runtime.errors import ContextOverflow
from caesura.runtime.run.context import Plan
from caesura.runtime.server.api.fields import Listed, Part
from caesura.scheduler.histories import REASONING
from caesura.scheduler.messages import Message, parts_of

CLEAR_TOKENS = 100_000
COMPACT_TOKENS = 150_000
"""The prompts at which Anthropic's API clears and compacts if a request does not say it."""
SHARE = 0.75
"""The share of a smaller context window at which it is done here."""
KEPT_USES = 3
ClearThinkingType = Literal["clear_thinking_20251015"]
CLEAR_THINKING: ClearThinkingType = "clear_thinking_20251015"
CLEARED = "[This result was cleared to make room. Call the tool again if it is needed.]"
FRAME_TOKENS = 4
"""About how many tokens a template writes around a message."""
Count = Annotated[int, Field(ge=0)]


class Tokens(Part):
    """A number of tokens of a prompt."""

    type: Literal["input_tokens"] = "input_tokens"
    value: Count


class Uses(Part):
    """A number of calls with their results."""

    type: Literal["tool_uses"] = "tool_uses"
    value: Count


class Turns(Part):
    """A number of turns in which the model thought."""

    type: Literal["thinking_turns"] = "thinking_turns"
    value: Annotated[int, Field(ge=1)]


class AllTurns(Part):
    """All turns."""

    type: Literal["all"]


class ClearToolUses(Part):
    """Clears the results of the oldest calls, and their inputs if that is asked for."""

    type: Literal["clear_tool_uses_20250919"]
    trigger: Annotated[Tokens | Uses, Field(discriminator="type")] | None = None
    keep: Uses = Uses(value=KEPT_USES)
    clear_at_least: Tokens | None = None
    exclude_tools: Annotated[list[str], Listed] = []
    clear_tool_inputs: bool | list[str] | None = None

    def clears_inputs(self, name: str) -> bool:
        """Return whether the inputs of a tool are cleared with its results."""
        which = self.clear_tool_inputs
        return name in which if isinstance(which, list) else bool(which)


class ClearThinking(Part):
    """Clears what the model thought in all but its last turns."""

    type: ClearThinkingType
    keep: Annotated[Turns | AllTurns, Field(discriminator="type")] | Literal["all"] = Turns(value=1)


class Compact(Part):
    """Replaces a conversation that has grown too long by a summary."""

    type: Literal["compact_20260112"]
    trigger: Tokens | None = None
    pause_after_compaction: bool = False
    instructions: str | None = None


class ContextManagement(Part):
    """What is done to a conversation that grows long."""

    edits: Annotated[
        list[Annotated[ClearToolUses | ClearThinking | Compact, Field(discriminator="type")]],
        Listed,
    ] = []

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        kinds = [edit.type for edit in self.edits]
        if len(set(kinds)) < len(kinds):
            raise ValueError("edits may hold one edit of each type")
        return self


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call with its result: the tool, the places of the call, and of the message that answers."""

    name: str
    message: int
    call: int
    result: int


def tool_uses(messages: Sequence[Message]) -> list[ToolUse]:
    """Return the calls that have a result, in the order of the results."""
    asked: dict[str, tuple[str, int, int]] = {}
    found = []
    for at, message in enumerate(messages):
        for number, call in enumerate(message.get("tool_calls") or ()):
            asked[call["id"]] = (call["function"]["name"], at, number)
        if message["role"] == "tool" and message["tool_call_id"] in asked:
            found.append(ToolUse(*asked.pop(message["tool_call_id"]), at))
    return found


def without_uses(
    messages: Sequence[Message], uses: Sequence[ToolUse], edit: ClearToolUses
) -> list[Message]:
    """Return the messages with the results of `uses` cleared, and their inputs if `edit` says so.

    A call without its input has an empty object.
    """
    edited: list[dict[str, Any]] = [dict(message) for message in messages]
    for use in uses:
        edited[use.result]["content"] = CLEARED
        if edit.clears_inputs(use.name):
            caller = edited[use.message]
            calls = list(caller["tool_calls"])
            function = calls[use.call]["function"] | {"arguments": "{}"}
            calls[use.call] = calls[use.call] | {"function": function}
            caller["tool_calls"] = calls
    return list(edited)


def without_thinking(messages: Sequence[Message], turns: int) -> tuple[list[Message], int]:
    """Return the messages with the thinking of the last `turns` turns alone, and how many lose it.

    A turn is what the model said and called between two messages of the user.
    """
    thought: dict[int, list[int]] = {}
    turn = 0
    for at, message in enumerate(messages):
        turn += message["role"] == "user"
        if any(message.get(name) for name in REASONING):
            thought.setdefault(turn, []).append(at)
    cleared = list(thought.values())[:-turns]
    edited = list(messages)
    for at in (at for places in cleared for at in places):
        edited[at] = {key: said for key, said in messages[at].items() if key not in REASONING}
    return edited, len(cleared)


@dataclass(frozen=True, slots=True)
class Growth:
    """How a conversation grew, in tokens.

    `sizes` are those of its messages, and `savings` what clearing each of its uses of tools saves.
    `first` is the prompt of its first answer, and `whole` that of the answer to come.
    """

    sizes: Sequence[int]
    savings: Sequence[int]
    first: int
    whole: int

    def prompts(self, messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
        """Yield how many messages each answer followed, and the tokens of its prompt."""
        answers = [at for at, each in enumerate(messages) if each["role"] == "assistant"]
        before = [0, *accumulate(self.sizes)]
        for at in answers:
            yield at, self.first + before[at] - before[answers[0]]
        if not answers or answers[-1] < len(messages) - 1:
            yield len(messages), self.whole


def uses_to_clear(
    edit: ClearToolUses,
    messages: Sequence[Message],
    uses: Sequence[ToolUse],
    growth: Growth,
    most_tokens: int,
) -> list[int]:
    """Return the numbers of the uses of tools that were cleared by the time of the next answer.

    `most_tokens` is the prompt beyond which is cleared, unless the edit counts uses.
    """
    cleared: set[int] = set()
    saved = 0
    results = [use.result for use in uses]
    for length, tokens in growth.prompts(messages):
        known = bisect_left(results, length)
        if isinstance(edit.trigger, Uses):
            is_due = known - len(cleared) > edit.trigger.value
        else:
            is_due = tokens - saved > most_tokens
        if not is_due:
            continue
        old = range(max(0, known - edit.keep.value))
        excluded = edit.exclude_tools
        more = {n for n in old if n not in cleared and uses[n].name not in excluded}
        gain = sum(growth.savings[number] for number in more)
        if edit.clear_at_least is None or gain >= edit.clear_at_least.value:
            cleared |= more
            saved += gain
    return sorted(cleared)


@dataclass(frozen=True, slots=True)
class Managed:
    """A plan after the edits: what was cleared, and the compaction that is due, if one is."""

    plan: Plan
    original_tokens: int | None = None
    """The prompt before the edits; None where no edit had to know."""
    applied: tuple[Mapping[str, Any], ...] = ()
    compaction: Compact | None = None


class Manager:
    """Makes the edits of one request."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        """Create it for a plan whose media are data URLs."""
        self._engine = engine
        self._plan = plan
        self._tokens: int | None = None
        self._applied: list[Mapping[str, Any]] = []

    async def edited(self, management: ContextManagement) -> Managed:
        """Return the plan after all edits; raise what counting a prompt raises."""
        original, due = None, None
        for edit in management.edits:
            if isinstance(edit, ClearThinking) and not isinstance(edit.keep, Turns):
                continue
            before = await self._count()
            original = before if original is None else original
            match edit:
                case ClearToolUses():
                    await self._clear_uses(edit, before)
                case ClearThinking(keep=Turns(value=turns)):
                    await self._clear_thinking(edit.type, turns, before)
                case Compact() if before >= self._limit(edit.trigger, COMPACT_TOKENS):
                    due = None if self._plan.spec.prefill else edit
        return Managed(self._plan, original, tuple(self._applied), due)

    def _limit(self, given: Tokens | Uses | None, usual: int) -> int:
        if given is not None:
            return given.value
        return min(usual, int(SHARE * self._engine.context_tokens))

    async def _count(self) -> int:
        """Return the tokens of the prompt; about how many where it is longer than the window."""
        if self._tokens is None:
            messages, spec = self._plan.messages, self._plan.spec
            try:
                self._tokens = await self._engine.count_prompt(spec, messages)
            except ContextOverflow:
                self._tokens = sum(await asyncio.to_thread(self._sizes, messages))
        return self._tokens

    def _sizes(self, messages: Sequence[Message]) -> list[int]:
        return [self._engine.count_tokens(_text(each)) + FRAME_TOKENS for each in messages]

    async def _clear_uses(self, edit: ClearToolUses, before: int) -> None:
        most = self._limit(edit.trigger, CLEAR_TOKENS)
        uses = tool_uses(self._plan.messages)
        counts = isinstance(edit.trigger, Uses)
        if len(uses) <= (most if counts else edit.keep.value) or (not counts and before <= most):
            return
        messages = self._plan.messages
        first = next(at for at, each in enumerate(messages) if each["role"] == "assistant")
        spec = replace(self._plan.spec, prefill=False)
        begin = await self._engine.count_prompt(spec, messages[:first])
        sizes = await asyncio.to_thread(self._sizes, messages)
        savings = await asyncio.to_thread(self._savings, edit, uses)
        growth = Growth(sizes, savings, begin, before)
        numbers = uses_to_clear(edit, messages, uses, growth, most)
        if numbers:
            cleared = without_uses(messages, [uses[number] for number in numbers], edit)
            self._replace(cleared)
            after = await self._count()
            told = {"cleared_tool_uses": len(numbers), "cleared_input_tokens": before - after}
            self._applied.append({"type": edit.type} | told)

    def _savings(self, edit: ClearToolUses, uses: Sequence[ToolUse]) -> list[int]:
        count, messages = self._engine.count_tokens, self._plan.messages
        left = count(CLEARED)
        savings = []
        for use in uses:
            saved = max(0, count(_text(messages[use.result])) - left)
            if edit.clears_inputs(use.name):
                function = messages[use.message]["tool_calls"][use.call]["function"]
                saved += count(function["arguments"])
            savings.append(saved)
        return savings

    async def _clear_thinking(self, kind: str, turns: int, before: int) -> None:
        messages, number = without_thinking(self._plan.messages, turns)
        if number:
            self._replace(messages)
            spec = replace(self._plan.spec, exact_thinking=True)
            self._plan = replace(self._plan, spec=spec)
            saved = max(0, before - await self._count())
            told = {"cleared_thinking_turns": number, "cleared_input_tokens": saved}
            self._applied.append({"type": kind} | told)

    def _replace(self, messages: Sequence[Message]) -> None:
        self._plan = replace(self._plan, messages=tuple(messages))
        self._tokens = None


def _text(message: Message) -> str:
    """Return what of a message the tokens are counted of: its texts, and its calls."""
    content = message.get("content")
    said = [content] if isinstance(content, str) else [p.get("text", "") for p in parts_of(content)]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return " ".join([*said, *(f"{each['name']} {each['arguments']}" for each in calls)])
