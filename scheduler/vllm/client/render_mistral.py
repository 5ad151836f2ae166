"""Messages to tokens by mistral-common, which Mistral's own tokenizers come with.

It encodes control tokens by itself: no text that a user or a tool wrote becomes one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import Message, ToolSpec
from caesura.scheduler.vllm.client.render import Renderer

FIRST_VERSION_WITH_TEXT_BESIDE_CALLS = 5
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
MAX_NAME_CHARACTERS = 64


class MistralRenderer(Renderer):
    """Renders for a model with vLLM's `MistralTokenizer`."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Render a whole conversation up to where the model begins to write.

        Raises `UsageError` if mistral-common refuses the messages.
        """
        text_too = self._tokenizer.version >= FIRST_VERSION_WITH_TEXT_BESIDE_CALLS
        given = [_accepted(message, text_too) for message in messages]
        try:
            return list(
                self._tokenizer.apply_chat_template(
                    given, tools=[_described(tool) for tool in tools], add_generation_prompt=True
                )
            )
        except Exception as error:
            # Its validators raise their own kinds, and Pydantic's.
            raise UsageError(f"mistral-common refused the messages: {error}") from error

    def bridge(
        self,
        turn: Message,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        last_token: int,
    ) -> list[int] | None:
        """Tokens to append after the model's turn `turn` so that `messages` come next.

        None where earlier messages are rendered differently once later ones follow: some versions
        write the tools before the last question.
        """
        question = {"role": "user", "content": "."}
        asked = self.prompt([question], tools)
        opened = self.prompt([question, turn, *messages], tools)
        if opened[: len(asked)] != asked:
            return None
        ends = (at for at in range(len(asked), len(opened)) if opened[at] in self._ends)
        end = next(ends, None)
        if end is None:
            return None
        return opened[end + 1 :] if last_token in self._ends else opened[end:]


def _accepted(message: Message, text_too: bool) -> dict[str, Any]:
    """Return a message as mistral-common takes it.

    It refuses empty answers, names that no tool can have, and before version 5 text beside calls.
    """
    plain = {key: value for key, value in message.items() if value is not None}
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
    """Return a tool with the parameters that mistral-common asks for."""
    function = dict(tool["function"])
    function["parameters"] = function.get("parameters") or {"type": "object", "properties": {}}
    return {**tool, "function": function}
