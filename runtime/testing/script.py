"""Scripts of a `ScriptedEngine`: their items, and the events that an item becomes."""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
)
from caesura.scheduler.messages import CallRule, Message, ToolSpec


class ScriptError(AssertionError):
    """The run does not match the script, or the caller violated the engine's contract."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """Text that began a call but did not complete it, and the reason that the model sees."""

    text: str
    reason: str
    name: str | None = None


ScriptedCall = tuple[str, Mapping[str, Any] | str] | Malformed
"""A tool's name and its arguments, as a mapping or as JSON text to write unchanged."""


@dataclass(frozen=True, slots=True)
class Calls:
    """A turn of reasoning, text and calls, in this order.

    An `inline` call is in the middle of a sentence, which the script's next item continues.
    """

    text: str = ""
    calls: Sequence[ScriptedCall] = ()
    inline: bool = False
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """A turn in which the engine writes `text` and then raises `error`."""

    error: Exception
    text: str = ""


Item = str | Calls | Malformed | Fail
"""One turn of a script. A str is an answer."""

ScriptFunction = Callable[[Sequence[Message], Sequence[ToolSpec]], Item | Awaitable[Item]]
"""A function from the conversation so far and the tools that the model sees to the next turn."""

Script = Sequence[Item] | ScriptFunction


def say(text: str) -> str:
    """Return a turn that writes an answer."""
    return text


def think(reasoning: str, item: "str | Calls | Malformed") -> Calls:
    """Return the turn `item`, before which the model thinks."""
    return replace(as_calls(item), reasoning=reasoning)


def call(name: str, /, **arguments: Any) -> Calls:
    """Return a turn that calls one tool."""
    return Calls(calls=((name, arguments),))


def calls(*items: Calls | Malformed, text: str = "") -> Calls:
    """Return a turn of `text` and several calls, such as `calls(call("a"), call("b", x=1))`."""
    found: list[ScriptedCall] = []
    for item in items:
        found.extend([item] if isinstance(item, Malformed) else item.calls)
    return Calls(text, tuple(found))


def inline(text: str, name: str, /, **arguments: Any) -> Calls:
    """Return a turn that writes `text` and calls a tool in the middle of the sentence."""
    return Calls(text, ((name, arguments),), inline=True)


def malformed(text: str, reason: str, name: str | None = None) -> Malformed:
    """Return a turn whose text begins a call but does not complete it."""
    return Malformed(text, reason, name)


def fail(error: Exception, text: str = "") -> Fail:
    """Return a turn that writes `text` and raises `error`, such as `EngineFailed("killed")`."""
    return Fail(error, text)


def count_units(text: str) -> int:
    """Return the text's number of scripted tokens: runs of characters without white space."""
    return len(re.findall(r"\S+", text))


def as_calls(item: Item) -> Calls:
    """Return an item in its general form."""
    match item:
        case str():
            return Calls(item)
        case Malformed():
            return Calls(calls=(item,))
        case Fail():
            return Calls(item.text)
        case _:
            return item


def stopped(turn: Calls, stops: Sequence[str]) -> tuple[Calls, str | None]:
    """Cut a turn before the first stop text in its text; return it, and that stop text or None."""
    places = [(turn.text.find(stop), stop) for stop in stops if stop in turn.text]
    if not places:
        return turn, None
    start, stop = min(places)
    return Calls(turn.text[:start], reasoning=turn.reasoning), stop


def cut(turn: Calls, max_tokens: int | None) -> tuple[Calls, int, bool]:
    """Cut a turn to `max_tokens`; return it, its tokens, and whether it was cut.

    The turn leaves out a call that does not fit as a whole.
    """
    thought, words = _words(turn.reasoning), _words(turn.text)
    used = len(thought) + len(words)
    limit = max_tokens if max_tokens is not None else used + _call_units(turn.calls)
    if used > limit:
        left = max(limit - len(thought), 0)
        reasoning = "".join(thought[:limit])
        return Calls("".join(words[:left]), reasoning=reasoning), limit, True
    kept: list[ScriptedCall] = []
    for each in turn.calls:
        if used + _call_units([each]) > limit:
            return replace(turn, calls=tuple(kept)), limit, True
        kept.append(each)
        used += _call_units([each])
    return turn, max(used, 1), False


def play(
    turn: Calls, piece_characters: int, new_id: Callable[[], str], logprobs: int | None = None
) -> Iterator[Event]:
    """Yield a turn's events except `TurnEnded`, with text and arguments in pieces.

    `logprobs` is that of `Sampling`; each piece is then a token, which is certain.
    """
    for piece in _pieces(turn.reasoning, piece_characters):
        yield ReasoningDelta(piece)
    for piece in _pieces(turn.text, piece_characters):
        yield TextDelta(piece, () if logprobs is None else (_certain(piece, logprobs),))
    for each in turn.calls:
        call_id = new_id()
        if isinstance(each, Malformed):
            if each.name is not None:
                yield CallStarted(call_id, each.name, turn.inline)
            yield CallMalformed(call_id, each.name, each.text, each.reason, turn.inline)
            continue
        name, arguments = each
        text = _arguments_text(arguments)
        yield CallStarted(call_id, name, turn.inline)
        for piece in _pieces(text, piece_characters):
            yield ArgumentsDelta(call_id, piece)
        yield CallFinished(call_id, name, text, turn.inline)


def _certain(text: str, logprobs: int) -> TokenLogprob:
    token = TokenLogprob(text, 0.0, text.encode())
    return TokenLogprob(text, 0.0, text.encode(), (token,) if logprobs else ())


def broken_rule(turn: Calls, rule: CallRule) -> str | None:
    """Return how a turn violates the rule of its calls, or None if it does not."""
    called = {each[0] for each in turn.calls if not isinstance(each, Malformed)}
    if rule.required and not turn.calls:
        return "calls no tool, but the turn requires a call"
    if rule.single and len(turn.calls) > 1:
        return f"holds {len(turn.calls)} calls, but the turn may hold one"
    if rule.names is not None and not called <= set(rule.names):
        return f"calls {sorted(called - set(rule.names))}, but may call {sorted(rule.names)}"
    return None


class Reader:
    """A script and the position of its next item."""

    def __init__(self, script: Script) -> None:
        self._function = script if callable(script) else None
        self._items = () if callable(script) else tuple(script)
        self._position = 0

    @property
    def left(self) -> tuple[Item, ...]:
        """The items that were not read yet; empty if the script is a function."""
        return self._items[self._position :]

    async def read(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        error: Callable[[str], ScriptError],
    ) -> Item:
        """Return the next item; raise `error(...)` at the end of the script."""
        if self._function is not None:
            item = self._function(messages, tools)
            return await item if isinstance(item, Awaitable) else item
        if not self.left:
            last = json.dumps(messages[-1], ensure_ascii=False, default=str)
            raise error(f"is past the end of the script ({self._position} items); it got {last}")
        self._position += 1
        return self._items[self._position - 1]


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+", text)


def _call_units(found: Sequence[ScriptedCall]) -> int:
    texts = [
        c.text if isinstance(c, Malformed) else f"{c[0]} {_arguments_text(c[1])}" for c in found
    ]
    return sum(count_units(text) for text in texts)


def _arguments_text(arguments: Mapping[str, Any] | str) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False)


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))
