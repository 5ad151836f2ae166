"""Parser for calls whose arguments are bare text between tags, in one pass.

vLLM's parser for `qwen3_coder` parses all arguments again at each `>` of a value, so HTML pages
take minutes. vLLM's parsers for these formats drop the text after the first closing tag in a value.
This parser reads each character once and refuses such values. Types come from the tool's JSON
schema.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from caesura.intercept.calls.formats import (
    DEEPSEEK_V4,
    DEEPSEEK_V32,
    DEEPSEEK_V41,
    DSML,
    GLM,
    MINIMAX_M2,
    QWEN3_CODER,
    SEED_OSS,
    CallFormat,
    resolve,
)
from caesura.scheduler.messages import ToolSpec
from caesura.scheduler.vllm.client.parsing.argument_types import ArgumentTypes, types_of
from caesura.scheduler.vllm.client.parsing.calls import Found, Piece

MAX_TAG_CHARACTERS = 1024
"""Maximum length of the text between two values: tags, the names in them, and spaces."""


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of a format's calls.

    `head` matches the tool's name, `argument` the text before a value, both with a group `name`;
    `end` the end of a call, and `outer` the end of the region. `close` ends a value.
    `before` precedes each value, so no value may contain it. `again`: a region may hold several
    calls. `trims`: a line break at either end of a value is not part of it. `typed`: the group
    `string` of `argument` is `true` for a text, and the value is JSON otherwise.
    """

    head: re.Pattern[str]
    argument: re.Pattern[str]
    end: re.Pattern[str]
    outer: re.Pattern[str]
    before: str
    close: str
    again: bool
    trims: bool
    typed: bool = False


def _functions(form: CallFormat) -> Tags:
    """Return the tags of a family that writes `<function=NAME>` and `<parameter=KEY>`."""
    return Tags(
        head=re.compile(rf"\s*(?:{form.opens[0]}\s*)?<function=\s*(?P<name>[^<>\s][^<>]*)>"),
        argument=re.compile(r"\s*<parameter=\s*(?P<name>[^<>\s][^<>]*)>"),
        end=re.compile(r"\s*</function>"),
        outer=re.compile(rf"\s*{form.closes}"),
        before="<parameter=",
        close="</parameter>",
        again=True,
        trims=True,
    )


def _invoked(form: CallFormat, tag: str = "") -> Tags:
    """Return the tags of a family that writes `<invoke name="NAME">`; `tag` begins them.

    Names may also stand in single quotes, or without any.
    """
    openers = "|".join(re.escape(text) for each in resolve([form.name], ()) for text in each.opens)
    name = r"""\s+name\s*=\s*(?P<quote>["']?)(?P<name>[^<>"]+?)(?P=quote)(?=[\s>])"""
    string = r"""(?:\s+string="(?P<string>[^"<>]*)")?\s*>"""
    return Tags(
        head=re.compile(rf"\s*(?:(?:{openers})\s*)?<{tag}invoke{name}\s*>"),
        argument=re.compile(rf"\s*<{tag}parameter{name}{string}"),
        end=re.compile(rf"\s*</{tag}invoke>"),
        outer=re.compile(rf"\s*{form.closes}"),
        before=f"<{tag}parameter name=",
        close=f"</{tag}parameter>",
        again=True,
        trims=False,
        typed=bool(tag),
    )


TAGS = {
    QWEN3_CODER.name: _functions(QWEN3_CODER),
    SEED_OSS.name: _functions(SEED_OSS),
    MINIMAX_M2.name: _invoked(MINIMAX_M2),
    DEEPSEEK_V32.name: _invoked(DEEPSEEK_V32, DSML),
    DEEPSEEK_V4.name: _invoked(DEEPSEEK_V4, DSML),
    DEEPSEEK_V41.name: _invoked(DEEPSEEK_V41, f"{DSML} "),
    GLM.name: Tags(
        head=re.compile(r"<tool_call>\s*(?P<name>[^\s<>(){}|]+)\s*(?=<arg_key>|</tool_call>)"),
        argument=re.compile(r"\s*<arg_key>\s*(?P<name>[^<>\s][^<>]*)</arg_key>\s*<arg_value>"),
        end=re.compile(r"\s*</tool_call>"),
        outer=re.compile(r"\s*</tool_call>"),
        before="<arg_value>",
        close="</arg_value>",
        again=False,
        trims=False,
    ),
}
"""The tags by the name of the format."""


@dataclass(slots=True)
class _Call:
    """A call as parsed so far; `pieces` concatenate to its arguments' JSON."""

    name: str
    announced: bool = False
    keys: set[str] = field(default_factory=set)
    pieces: list[str] = field(default_factory=list)


class TaggedCalls:
    """Parses one region of calls, and yields what is certain of them as it arrives."""

    def __init__(self, tags: Tags, tools: Sequence[ToolSpec]) -> None:
        """Create a parser; values of tools that are not in `tools` are texts."""
        self._tags = tags
        self._tools = tools
        self._inside = re.compile(f"{re.escape(tags.close)}|{re.escape(tags.before)}")
        self._window = ""
        self._at = 0
        self._state: Callable[[], Iterator[Piece]] | None = self._head
        self._calls: list[_Call] = []
        self._last_tag = ""
        self._problem: str | None = None
        # The state of the current value: its argument, its types, and its text so far.
        self._key = ""
        self._types: ArgumentTypes | None = None
        self._is_json = self._is_text = False
        self._value: list[str] = []
        self._begun = False

    def push(self, text: str) -> Iterator[Piece]:
        """Parse more of the region and yield pieces of its calls."""
        if self._state is None:
            return
        self._window += text
        read = -1
        while read != self._at and self._state is not None:
            read = self._at
            yield from self._state()
        self._window, self._at = self._window[self._at :], 0
        if self._state != self._read_value and len(self._window) > MAX_TAG_CHARACTERS:
            self._fail(self._what_is_left())

    def found(self, text: str) -> list[Found]:
        """Return the calls of the complete region, all of which was pushed before.

        Raises `ValueError`, with one line for the model, if the region is malformed or a value
        seems to be truncated.
        """
        problem = self._problem
        if problem is None and self._state == self._read_value:
            problem = f"the value of {self._key!r} is not closed by {self._tags.close}"
        elif problem is None and (self._state == self._argument or self._window.strip()):
            problem = self._what_is_left()
        if problem is not None or not self._calls:
            raise ValueError(problem or "no tool is named")
        return [Found(call.name, "".join(call.pieces)) for call in self._calls]

    # -- what may come next ----------------------------------------------------------------------

    def _head(self) -> Iterator[Piece]:
        """Parse the tool's name, or the end of the region."""
        if (found := self._take(self._tags.head)) is not None:
            self._calls.append(_Call(found["name"].strip()))
            self._state = self._argument
        elif self._calls and self._take(self._tags.outer) is not None:
            self._state = None
        yield from ()

    def _argument(self) -> Iterator[Piece]:
        """Parse an argument's name, or the end of the call."""
        call = self._calls[-1]
        if (found := self._take(self._tags.argument)) is not None:
            self._key, self._value, self._begun = found["name"].strip(), [], False
            if self._key in call.keys:
                self._fail(f"the argument {self._key!r} is given twice")
                return
            lead = ", " if call.keys else "{"
            call.keys.add(self._key)
            self._types = self._types_of(call.name, self._key)
            self._is_json = self._tags.typed and found["string"] != "true"
            self._is_text = not self._is_json and (self._types is None or self._types.is_text)
            self._state = self._read_value
            quote = '"' if self._is_text else ""
            yield self._piece(f"{lead}{json.dumps(self._key, ensure_ascii=False)}: {quote}")
        elif self._take(self._tags.end) is not None:
            self._state = self._head if self._tags.again else None
            yield self._piece("}" if call.keys else "{}")

    def _read_value(self) -> Iterator[Piece]:
        """Parse a value, up to its closing tag if that has arrived."""
        found = self._inside.search(self._window, self._at)
        if found is not None and found[0] != self._tags.close:
            self._fail(f"the value of {self._key!r} is not closed before the next {found[0]}")
            return
        text = self._take_text(self._ready() if found is None else found.start())
        if self._tags.trims and found is not None:
            text = text.removesuffix("\n")
        if not self._is_text:
            self._value.append(text)
        elif text:
            yield self._piece(json.dumps(text, ensure_ascii=False)[1:-1])
        if found is not None:
            self._at, self._last_tag, self._state = found.end(), found[0], self._argument
            yield from self._value_end()

    # -- how it is read --------------------------------------------------------------------------

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._window, self._at)
        if found is not None:
            self._at, self._last_tag = found.end(), found[0].strip().rpartition("\n")[2]
        return found

    def _take_text(self, end: int) -> str:
        """Consume the value's text up to `end`; return it without the line break at its begin."""
        text, self._at = self._window[self._at : end], end
        if text and not self._begun:
            self._begun = True
            text = text.removeprefix("\n") if self._tags.trims else text
        return text

    def _ready(self) -> int:
        """Return the end of the text that certainly belongs to the value."""
        end = len(self._window)
        tag = self._window.rfind("<", self._at)
        tags = (self._tags.close, self._tags.before)
        if tag >= 0 and any(each.startswith(self._window[tag:]) for each in tags):
            end = tag
        if self._tags.trims and end > self._at and self._window[end - 1] == "\n":
            end -= 1
        return end

    def _value_end(self) -> Iterator[Piece]:
        """Yield the end of the value: the quote of a string, or the whole of another type."""
        if self._is_text:
            yield self._piece('"')
            return
        try:
            value = _value_of("".join(self._value), self._types, self._is_json)
            text = json.dumps(value, ensure_ascii=False)
        except RecursionError:
            self._fail(f"the value of {self._key!r} is nested too deeply")
        else:
            yield self._piece(text)

    def _types_of(self, name: str, key: str) -> ArgumentTypes | None:
        """Return what a tool's argument may be; None for an unknown argument."""
        for tool in self._tools:
            if tool["function"]["name"] == name:
                return types_of(tool["function"].get("parameters"), key)
        return None

    def _piece(self, text: str) -> Piece:
        call = self._calls[-1]
        call.pieces.append(text)
        name, call.announced = "" if call.announced else call.name, True
        return Piece(len(self._calls) - 1, name, text)

    def _what_is_left(self) -> str:
        if self._last_tag.startswith("</"):
            return f"there is text after {self._last_tag}, so a value may have been cut there"
        where = f" after {self._last_tag}" if self._last_tag else ""
        return f"a tag is missing{where}"

    def _fail(self, problem: str) -> None:
        self._state, self._problem = None, problem


def _value_of(text: str, types: ArgumentTypes | None, is_json: bool) -> Any:
    """Return a value by the types of the schema; None stands for any type.

    Text with `is_json` is JSON, or else a text. Raises `RecursionError` for deep nesting.
    """
    if is_json:
        try:
            value = json.loads(text, parse_constant=_refuse)
        except ValueError:
            value = text
        if types is None or isinstance(value, dict | list):
            return value
        text = value if isinstance(value, str) else json.dumps(value)
    return text if types is None else types.value(text)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON; write a number")
