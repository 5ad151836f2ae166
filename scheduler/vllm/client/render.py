"""Messages to tokens, by the model's own chat template.

A conversation is rendered once. What follows is appended: `bridge` finds the text that the template
puts between the end of one turn and the beginning of the next, so that tokens which the engine
already holds are never rendered or tokenised again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from caesura.intercept.react import observation
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import Message, ToolSpec


class Renderer:
    """Renders for one model."""

    def __init__(self, tokenizer: Any, ends: frozenset[int]) -> None:
        """`tokenizer` is a `transformers` tokenizer, `ends` are the ids that end a turn."""
        self._tokenizer = tokenizer
        self._ends = ends
        self._end_texts = [tokenizer.decode([token_id]) for token_id in sorted(ends)]

    def encode(self, text: str) -> list[int]:
        """Tokenise text as it stands."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def end_text(self, token_id: int) -> str:
        """The text of a token that ends a turn; empty for any other token."""
        return str(self._tokenizer.decode([token_id])) if token_id in self._ends else ""

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Render a whole conversation up to where the model begins to write.

        Raises `UsageError` if the model has no chat template or its template refuses the messages.
        """
        return self.encode(self._render(messages, tools, open_turn=True))

    def bridge(
        self,
        turn: Message,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        last_token: int,
    ) -> list[int] | None:
        """Tokens to append after the model's turn `turn` so that `messages` come next.

        `last_token` is the last that the model wrote: if it ended the turn, the template's own end
        is not written twice. None if the template renders an earlier message differently once
        later ones follow; the conversation must then be rendered anew.
        """
        before = [{"role": "user", "content": "."}, turn]
        closed = self._render(before, tools, open_turn=False)
        opened = self._render([*before, *messages], tools, open_turn=True)
        if not opened.startswith(closed):
            return None
        found = max(((closed.rfind(text), text) for text in self._end_texts), default=(-1, ""))
        start, text = found
        if start < 0:
            tail = ""
        elif last_token in self._ends:
            tail = closed[start + len(text) :]
        else:
            tail = closed[start:]
        return self.encode(tail + opened[len(closed) :])

    def _render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], open_turn: bool
    ) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    [_for_template(message) for message in _with_observations(messages)],
                    tools=[dict(tool) for tool in tools] or None,
                    add_generation_prompt=open_turn,
                    tokenize=False,
                )
            )
        except Exception as error:
            # Templates raise whatever Jinja raises, their own refusals included.
            raise UsageError(f"the model's chat template refused the messages: {error}") from error


def _with_observations(messages: Sequence[Message]) -> Iterator[Message]:
    """Give results of calls that stand in the model's text back as text: no template knows them."""
    called = True
    for message in messages:
        if message.get("role") == "assistant":
            called = bool(message.get("tool_calls"))
        if message.get("role") == "tool" and not called:
            text = observation(str(message.get("content") or "")).rstrip("\n")
            yield {"role": "user", "content": text}
        else:
            yield message


def _for_template(message: Message) -> dict[str, Any]:
    """Give templates what they expect: texts, and arguments as objects rather than JSON text."""
    plain = {key: value for key, value in message.items() if value is not None}
    plain.setdefault("content", "")
    if plain.get("tool_calls"):
        plain["tool_calls"] = [_with_object_arguments(call) for call in plain["tool_calls"]]
    return plain


def _with_object_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            function["arguments"] = json.loads(arguments or "{}")
        except ValueError:
            function["arguments"] = {}
    return {**call, "function": function}
