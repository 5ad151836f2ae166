"""Conversion of messages to tokens, by the model's own chat template.

A conversation is rendered once, and later messages are appended. `bridge` finds the text that the
template puts between the end of one turn and the begin of the next. So tokens that the engine
already holds are never rendered or tokenised again.

Special tokens come from the template alone. Where users, tools, earlier answers or the tools'
descriptions spell one, its spelling is encoded as text. What system messages and the begin of a
prefilled answer spell is taken as meant.
"""

import json
import logging
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from jinja2 import TemplateError

from caesura.intercept.calls.react import observation
from caesura.intercept.calls.thinking import REGIONS, open_at_end, regions_shown
from caesura.scheduler.errors import ContextOverflow, UsageError
from caesura.scheduler.histories import Reads
from caesura.scheduler.messages import LATE, MEDIA_KINDS, Message, ToolSpec, has_media, text_of
from caesura.scheduler.vllm.client.rendering.roles import (
    TRUSTED,
    Roles,
    pictures_in,
    probed,
)
from caesura.scheduler.vllm.client.rendering.tokens import LiteralText, max_characters_per_token
from caesura.scheduler.vllm.tokenizer import template_of

logger = logging.getLogger(__name__)

NO_VARIABLES: Mapping[str, Any] = {}

MAX_OPENER_TOKENS = 64
"""Maximum number of tokens of an opener of thinking, including the spaces after it."""
QUESTION: Message = {"role": "user", "content": "."}
COUNTED_CALLS = "<|tool_call_begin|>"
"""The marker in the templates of Kimi K2, whose calls and results have ids that count calls."""
_TRIAL_IDS = ("aaaaaaaa1", "bbbbbbbb2")
"""Ids of calls as all templates take them."""
_NAMES_IDS = re.compile(r"\btool_call_id\b|\bid\b")
_STAND_IN = uuid.uuid4().hex
"""A text that no message holds by accident."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """A turn of the model, and the messages that follow it.

    If `last_token`, the turn's last, ended the turn, the template's own end is omitted. `system`
    are the messages before the first question, and `template` variables for the chat template.
    `calls_before` is the number of calls in earlier turns.
    """

    turn: Message
    messages: Sequence[Message]
    tools: Sequence[ToolSpec]
    last_token: int
    system: Sequence[Message] = ()
    template: Mapping[str, Any] = field(default_factory=dict)
    calls_before: int = 0


@dataclass(frozen=True, slots=True)
class Behind:
    """The tokens that a template writes behind the text of a turn.

    With `instead` the first of them stand instead of the token that ended the turn: gpt-oss's
    template ends the last answer with `<|return|>`, and an earlier one with `<|end|>`. The KV of
    that token was never computed, so nothing is lost with it.
    """

    tokens: list[int]
    instead: bool = False

    def joined(self, turn: Sequence[int]) -> list[int]:
        """Return all tokens, with those up to the end of the turn."""
        return [*(turn[:-1] if self.instead else turn), *self.tokens]


class Renderer:
    """Renders messages for one model; callable from any thread."""

    def __init__(
        self,
        tokenizer: Any,
        ends: frozenset[int],
        context_tokens: int | None = None,
        literal: bool = True,
        chat_template: str | None = None,
        in_parts: bool = False,
    ) -> None:
        """Create a renderer for a `transformers` tokenizer; `ends` are the ids that end a turn.

        `context_tokens` is the model's context window; None removes the limit on texts. With
        `literal`, special tokens that messages spell are text. `chat_template` is used instead of
        the tokenizer's own. The template gets texts as lists of parts if `in_parts`.
        """
        self._tokenizer = tokenizer
        self._ends = ends
        self._context_tokens = context_tokens
        self._characters_per_token = max_characters_per_token(tokenizer)
        self.chat_template = chat_template
        """The template that takes the place of the tokenizer's own, if there is one."""
        # The tokenizer renders with copies of itself, so a template set on it would be ignored.
        self._in_parts = in_parts
        self._chosen = {} if chat_template is None else {"chat_template": chat_template}
        template = template_of(tokenizer, chat_template)
        self._literal = LiteralText(tokenizer, template, literal)
        self._counts_calls = COUNTED_CALLS in template
        # The first use sets the tokenizer's state, which two threads must not do at once.
        self.encode(".")
        self._end_texts = [tokenizer.decode([token_id]) for token_id in sorted(ends)]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of the text, without special tokens added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def encode_literal(self, text: str) -> list[int]:
        """Return the tokens of a text of which no part may become a special token."""
        return self._literal.encode(self._literal.cut(text))

    def specials(self, tokens: Iterable[int]) -> Counter[int]:
        """Return how often each token that texts may not form stands among the tokens."""
        return self._literal.specials(tokens)

    def encode_rendered(self, text: str) -> list[int] | None:
        """Return the tokens of a text rendered from `given` messages; None if they spell none."""
        return self._literal.encode(text) if self._literal.is_cut(text) else None

    def count_spelled(self, messages: Sequence[Message]) -> int:
        """Return how many special tokens the messages spell that are rendered as text."""
        return sum(
            self._literal.count(each, answer=each.get("role") == "assistant")
            for each in messages
            if each.get("role") not in TRUSTED
        )

    def end_text(self, token_id: int) -> str:
        """Return the text of a token that ends a turn, or an empty text for other tokens."""
        return self.text_of(token_id) if token_id in self._ends else ""

    def text_of(self, token_id: int) -> str:
        """Return the text of one token."""
        return str(self._tokenizer.decode([token_id]))

    def thinking(self, tokens: Sequence[int]) -> str:
        """Return the opener of thinking at the end of a prompt, or an empty text without one."""
        return open_at_end(self._tokenizer.decode(list(tokens[-MAX_OPENER_TOKENS:])))

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        template: Mapping[str, Any] = NO_VARIABLES,
        prefill: bool = False,
    ) -> list[int]:
        """Return the tokens of a whole conversation, up to the begin of the model's next turn.

        `template` are variables for the chat template. With `prefill` the model continues the last
        message, which is the begin of its own turn.

        Raises `UsageError` if the model has no chat template or its template refuses the messages.
        Raises `ContextOverflow` for a text that cannot fit into the context window.
        """
        end: Literal["open", "prefill"] = "prefill" if prefill else "open"
        if self._counts_calls:
            messages = with_counted_ids(messages)
        return self._encode_bounded(self._render(messages, tools, template, end))

    def bridge(self, after: Continuation) -> list[int] | None:
        """Return the tokens to append after a turn, so that the messages follow.

        The result is None if the template changes earlier messages when later ones follow; the
        conversation must then be rendered again, or spliced. Raises the same as `prompt`.
        """
        after = self._told(after)
        question, tools, template = [*after.system, QUESTION], after.tools, after.template
        before = [*question, after.turn]
        asked = self._render(question, tools, template, "closed")
        closed = self._render(before, tools, template, "closed")
        opened = self._render([*before, *after.messages], tools, template, "open")
        if not (closed.startswith(asked) and opened.startswith(closed)):
            return None
        return self._behind(closed[len(asked) :], opened[len(closed) :], after.last_token)

    def splice(self, after: Continuation) -> Behind | None:
        """Return what follows a turn where the template would later write the turn differently.

        Templates drop the thinking of earlier turns, for example. So a turn with other text stands
        in for it, and what the template writes behind that text is taken. The result is None if
        the template leaves that text out, or if it changes anything before the turn.
        """
        after = self._told(after)
        question, tools, template = [*after.system, QUESTION], after.tools, after.template
        before = [*question, _standing_in(after.turn)]
        asked = self._render(question, tools, template, "closed")
        closed = self._render(before, tools, template, "closed")
        opened = self._render([*before, *after.messages], tools, template, "open")
        # Some templates end every rendering with spaces.
        asked = asked.rstrip()
        if not (closed.startswith(asked) and opened.startswith(asked)):
            return None
        _, found, end = closed.partition(_STAND_IN)
        _, found_again, later = opened.partition(_STAND_IN)
        if not (found and found_again):
            return None
        kept = self._kept(end, later)
        if kept is not None:
            return Behind(self._behind(kept, later[len(kept) :], after.last_token))
        if end.rstrip() not in self._end_texts:
            return None
        return Behind(self._encode_bounded(later), instead=after.last_token in self._ends)

    def _told(self, after: Continuation) -> Continuation:
        """Return a continuation with the calls that the template can write in one turn."""
        calls = after.turn.get("tool_calls") or ()
        if len(calls) > 1 and not self.roles.several_calls:
            # The templates of Llama 3 refuse several, which its models may write.
            after = replace(after, turn={**after.turn, "tool_calls": calls[-1:]})
        if not self._counts_calls:
            return after
        turn, *messages = with_counted_ids([after.turn, *after.messages], after.calls_before)
        return replace(after, turn=turn, messages=messages)

    def _kept(self, end: str, later: str) -> str | None:
        """Return how much of `end`, the text behind the last turn, `later` keeps.

        Some templates write more behind the end of the last turn than behind that of earlier ones.
        The result is None if the end itself changes.
        """
        if later.startswith(end):
            return end
        ends = "|".join(map(re.escape, self._end_texts))
        kept = [
            end[: at.end()] for at in re.finditer(ends, end) if later.startswith(end[: at.end()])
        ]
        return kept[-1] if kept and kept[-1] else None

    def _behind(self, turn: str, later: str, last_token: int) -> list[int]:
        """Return the tokens behind a turn; the template writes `turn` and then `later`."""
        start, text = max(((turn.rfind(text), text) for text in self._end_texts), default=(-1, ""))
        if start >= 0:
            later = turn[start:] + later
            return self._encode_bounded(later[len(text) :] if last_token in self._ends else later)
        # The turns of GLM, for example, end with the token that begins the next message.
        return self._encode_bounded(later.removeprefix(self.end_text(last_token)))

    @property
    def max_characters(self) -> int | None:
        """The most characters that the context window can hold, or None if that is not known."""
        if self._context_tokens is None or self._characters_per_token is None:
            return None
        return self._context_tokens * self._characters_per_token

    def _encode_bounded(self, text: str) -> list[int]:
        """Return the text's tokens; raise `ContextOverflow` if the window cannot hold it."""
        self.check_characters(self._literal.length(text))
        return self._literal.encode(text)

    def check_characters(self, count: int) -> None:
        """Raise `ContextOverflow` if the window cannot hold a text of that many characters."""
        most = self.max_characters
        if most is not None and count > most:
            raise ContextOverflow(
                f"This model's maximum context length is {self._context_tokens} tokens, which hold"
                f" {most} characters at most, and the conversation has {count}; shorten it or"
                " raise --max-model-len"
            )

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        template: Mapping[str, Any],
        end: Literal["open", "closed", "prefill"],
    ) -> str:
        return self._write(self.given(messages, end == "prefill"), tools, template, end)

    def _write(
        self,
        given: Sequence[dict[str, Any]],
        tools: Sequence[ToolSpec],
        template: Mapping[str, Any] = NO_VARIABLES,
        end: Literal["open", "closed", "prefill"] = "open",
    ) -> str:
        """Return the text that the template makes of `given` messages."""

        def written(given: Sequence[dict[str, Any]]) -> str:
            return str(
                self._tokenizer.apply_chat_template(
                    given,
                    tools=self.given_tools(tools),
                    add_generation_prompt=end == "open",
                    continue_final_message=end == "prefill",
                    tokenize=False,
                    **self._chosen,
                    **template,
                )
            )

        if self._in_parts:
            given = [_in_parts(message) for message in given]
        try:
            try:
                return written(given)
            except TypeError:
                # DeepSeek V3's template joins arguments with text.
                return written([_with_text_arguments(message) for message in given])
        except TemplateError as error:
            if type(error) is TemplateError:  # a refusal of the template's own
                said = f"the model's chat template refused the messages: {error}"
                raise UsageError(said) from error
            raise _unwritten(error) from error
        except Exception as error:
            raise _unwritten(error) from error

    @cached_property
    def roles(self) -> Roles:
        """What the template takes; two threads may ask it at once, with the same result."""
        found = probed(self._write_plainly)
        # An id that counts calls is not known where only what is new is written.
        return replace(found, late=False) if self._counts_calls else found

    @cached_property
    def reads(self) -> Reads:
        """What the template reads of messages, by the texts that it writes of some."""
        template = template_of(self._tokenizer, self.chat_template)
        opens = regions_shown(template, self._tokenizer.get_vocab())
        one, other = (self._trial(call_id) for call_id in _TRIAL_IDS)
        return Reads(
            template,
            ids=one != other or (not one and _NAMES_IDS.search(template) is not None),
            fields=_STAND_IN in one,
            thinking=tuple((opener, REGIONS[opener]) for opener in opens),
        )

    def _trial(self, call_id: str) -> str:
        """Return the text of a call of this id and its result, or an empty one if it is refused."""
        function = {"name": "f", "arguments": "{}"}
        call = {"id": call_id, "type": "function", "function": function}
        told = {"role": "assistant", "content": "", "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": call_id, "name": "f", "content": "."}
        messages = [{**each, "unnamed_field": _STAND_IN} for each in (QUESTION, told, result)]
        try:
            return self._write_plainly(messages, [])
        except UsageError:
            return ""

    @cached_property
    def pictures_in(self) -> tuple[str, ...]:
        """The roles in whose messages the template writes pictures."""
        return pictures_in(self._write_plainly)

    def _write_plainly(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """Return the text of messages in the roles that they have."""
        return self._write([_for_template(each) for each in messages], tools)

    def given_tools(self, tools: Sequence[ToolSpec]) -> list[dict[str, Any]] | None:
        """Return the tools for the template as `given` does messages, or None without any."""
        return [self._literal.cut(dict(tool)) for tool in tools] or None

    def for_template(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return messages as the template takes them, with results of inline calls as user text."""
        plain = [*_with_observations(messages)]
        return [_for_template(message) for message in self.roles.arranged(plain)]

    def given(self, messages: Sequence[Message], prefill: bool) -> list[dict[str, Any]]:
        """Return the messages for the template, in which spelled special tokens are cut."""
        given = self.for_template(messages)
        last = given.pop() if prefill and given else None
        for index, message in enumerate(given):
            if message.get("role") not in TRUSTED:
                given[index] = self._cut(message)
        return given if last is None else [*given, last]

    def _cut(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message in which spelled special tokens are cut, except in its media."""
        made: dict[str, Any] = self._literal.cut(message, answer=message.get("role") == "assistant")
        if has_media([message]):
            parts = zip(message["content"], made["content"], strict=True)
            made["content"] = [old if old.get("type") in MEDIA_KINDS else new for old, new in parts]
        return made


def _unwritten(error: Exception) -> UsageError:
    """Return the error for messages at which a template's code fails, whose details are logged."""
    logger.info("the chat template failed at messages: %s", error)
    return UsageError(
        "the model's chat template cannot write the messages: a field of a message, or of a tool's"
        " parameters, has a type that it does not expect"
    )


def with_counted_ids(messages: Sequence[Message], first: int = 0) -> list[Message]:
    """Return messages with the ids that Kimi K2 writes: `functions.NAME:` and a number.

    The number counts all calls of the conversation from 0; `first` is that of the first call here.
    """
    ids: dict[Any, str] = {}
    made: list[Message] = []
    for message in messages:
        if calls := message.get("tool_calls"):
            counted = []
            for call in calls:
                name = ids[call.get("id")] = f"functions.{call['function']['name']}:{first}"
                counted.append({**call, "id": name})
                first += 1
            message = {**message, "tool_calls": counted}
        elif message.get("tool_call_id") in ids:
            message = {**message, "tool_call_id": ids[message["tool_call_id"]]}
        made.append(message)
    return made


def _standing_in(turn: Message) -> Message:
    """Return a turn like `turn` with another text, which stands at its end if it has calls."""
    calls = turn.get("tool_calls")
    if not calls:
        return {"role": "assistant", "content": _STAND_IN}
    made = [{**call, "function": {**call["function"], "arguments": "{}"}} for call in calls]
    made[-1]["function"]["arguments"] = json.dumps({"text": _STAND_IN})
    return {"role": "assistant", "content": "", "tool_calls": made}


def _with_observations(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages, with results of inline calls as user text, which templates know."""
    called = True
    for message in messages:
        if message.get("role") == "assistant":
            called = bool(message.get("tool_calls"))
        if message.get("role") == "tool" and not called and not message.get(LATE):
            text = observation(text_of(message.get("content"))).rstrip("\n")
            yield {"role": "user", "content": text}
        else:
            yield message


def _for_template(message: Message) -> dict[str, Any]:
    """Return a message as templates expect it: arguments are objects, and content is not null.

    Templates know the reasoning by several names. That of gpt-oss takes it beside calls alone.
    """
    plain = {key: value for key, value in message.items() if value is not None}
    plain.setdefault("content", "")
    if reasoning := plain.get("reasoning") or plain.get("reasoning_content"):
        plain["reasoning"] = plain["reasoning_content"] = reasoning
        if plain.get("tool_calls") and not plain["content"]:
            plain.setdefault("thinking", reasoning)
    if plain.get("tool_calls"):
        plain["tool_calls"] = [_with_object_arguments(call) for call in plain["tool_calls"]]
    return plain


def _in_parts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its text as a part, but a tool's, as vLLM gives them to templates."""
    content = message.get("content")
    if message.get("role") == "tool" or not isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": content}] if content else []}


def _with_object_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments or "{}")
            json.dumps(read, ensure_ascii=False).encode()  # half a character has no tokens
            function["arguments"] = read
        except ValueError:
            # Templates need an object. The model shall see what it wrote.
            function["arguments"] = {"malformed_arguments": arguments}
    return {**call, "function": function}


def _with_text_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message with the arguments of its calls as JSON texts."""
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        text = json.dumps(call["function"].get("arguments") or {}, ensure_ascii=False)
        calls.append({**call, "function": {**call["function"], "arguments": text}})
    return {**message, "tool_calls": calls}
