"""Conversion of messages to tokens by mistral-common, the library of Mistral's tokenizers.

The library inserts control tokens itself, so text from a user or a tool never becomes one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from caesura.scheduler.errors import UsageError
from caesura.scheduler.histories import REASONING
from caesura.scheduler.messages import Message, ToolSpec
from caesura.scheduler.vllm.client.rendering.render import (
    NO_VARIABLES,
    QUESTION,
    Behind,
    Continuation,
    Renderer,
)

FIRST_VERSION_WITH_TEXT_BESIDE_CALLS = 5
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
MAX_NAME_CHARACTERS = 64


class MistralRenderer(Renderer):
    """Renders messages for a model with vLLM's `MistralTokenizer`."""

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        template: Mapping[str, Any] = NO_VARIABLES,
        prefill: bool = False,
    ) -> list[int]:
        """Return the tokens of a whole conversation, up to the begin of the model's next turn.

        Raises `UsageError` if mistral-common refuses the messages.
        """
        return self._encode_messages(self.roles.arranged(messages), tools, template, prefill)

    def _encode_messages(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        template: Mapping[str, Any] = NO_VARIABLES,
        prefill: bool = False,
    ) -> list[int]:
        """Return the tokens of messages in the roles that they have."""
        text_too = self._tokenizer.version >= FIRST_VERSION_WITH_TEXT_BESIDE_CALLS
        given = [_accepted(message, text_too) for message in messages]
        try:
            return list(
                self._tokenizer.apply_chat_template(
                    given,
                    tools=[_described(tool) for tool in tools],
                    add_generation_prompt=not prefill,
                    continue_final_message=prefill,
                    **template,
                )
            )
        except Exception as error:
            # The library's validators raise errors of their own and of Pydantic.
            raise UsageError(f"mistral-common refused the messages: {error}") from error

    def _write_plainly(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        return str(self._tokenizer.decode(self._encode_messages(messages, tools)))

    def bridge(self, after: Continuation) -> list[int] | None:
        """Return the tokens to append after a turn, so that the messages follow.

        The result is None if earlier messages change when later ones follow: some versions write
        the tools before the last question.
        """
        question, tools, template = [*after.system, QUESTION], after.tools, after.template
        asked = self.prompt(question, tools, template)
        opened = self.prompt([*question, after.turn, *after.messages], tools, template)
        if opened[: len(asked)] != asked:
            return None
        ends = (at for at in range(len(asked), len(opened)) if opened[at] in self._ends)
        end = next(ends, None)
        if end is None:
            return None
        return opened[end + 1 :] if after.last_token in self._ends else opened[end:]

    def splice(self, after: Continuation) -> Behind | None:
        """Return None: `bridge` never compares the turn, so its refusal is about other messages."""
        return None


def _accepted(message: Message, text_too: bool) -> dict[str, Any]:
    """Return a message in a form that mistral-common accepts.

    The library refuses empty answers and invalid tool names. Before version 5 it also refuses text
    in a message with calls. Reasoning of earlier turns is left out.
    """
    plain = {name: value for name, value in message.items() if value is not None}
    for name in REASONING:
        plain.pop(name, None)
    if "name" in plain:
        plain["name"] = _name(plain["name"])
    if plain.get("role") != "assistant":
        return plain
    calls = plain["tool_calls"] = list(_named(plain.get("tool_calls") or ()))
    if calls and not text_too:
        plain["content"] = ""
    elif not calls:
        plain["content"] = plain.get("content") or " "
    return plain


def _named(calls: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for call in calls:
        function = call["function"]
        yield {**call, "function": {**function, "name": _name(function["name"])}}


def _name(name: str) -> str:
    return _NO_NAME.sub("_", name)[:MAX_NAME_CHARACTERS] or "unknown"


def _described(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool with `parameters`, which mistral-common requires."""
    function = dict(tool["function"])
    function["parameters"] = function.get("parameters") or {"type": "object", "properties": {}}
    return {**tool, "function": function}
