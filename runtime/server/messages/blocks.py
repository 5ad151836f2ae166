"""The content blocks of Anthropic's messages, and what they become as chat messages."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from caesura.runtime.server.request.fields import MAX_MESSAGES, Name, Part

BILLING = "x-anthropic-billing-header"
"""Claude Code begins a block of `system` with this, and the rest of it differs in each request."""
_THINKING = ("thinking", "redacted_thinking")
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    **dict.fromkeys(_THINKING, ()),
}
"""The types of blocks, and the fields that each must have."""
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "tool_use", *_THINKING),
    "system": ("text",),
}
"""The types of blocks that a message of a role may hold."""


def _listed(content: object) -> object:
    """Return content as a list of blocks."""
    if content is None:
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class Block(Part):
    """A content block of any type; `content` is that of a tool's result."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: Name | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "Blocks" = []
    is_error: bool | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.type not in _NEEDED:
            kinds = ", ".join(kind for kind in _NEEDED)
            raise ValueError(f"a block of type {self.type[:64]!r} is not read here, only {kinds}")
        for name in _NEEDED[self.type]:
            if getattr(self, name) is None:
                raise ValueError(f"a block of type {self.type} must have the field {name}")
        for block in self.content:
            if block.type != "text":
                raise ValueError(f"a tool's result may hold text, not {block.type}")
        return self


Blocks = Annotated[list[Block], Field(max_length=MAX_MESSAGES), BeforeValidator(_listed)]
Block.model_rebuild()


class MessageParam(Part):
    """One message of the conversation."""

    role: str
    content: Blocks

    @model_validator(mode="after")
    def _may_hold_them(self) -> Self:
        allowed = _ALLOWED.get(self.role)
        if allowed is None:
            raise ValueError(f"role must be one of {', '.join(_ALLOWED)}, got {self.role[:64]!r}")
        for number, block in enumerate(self.content):
            if block.type not in allowed:
                raise ValueError(
                    f"content[{number}]: a message of role {self.role} may not hold {block.type}"
                )
        return self

    def records(self) -> list[dict[str, Any]]:
        """Return the message as chat messages: each result of a tool is a message of its own."""
        if self.role == "assistant":
            return [answer_record(self.content)]
        records = [_result(block) for block in self.content if block.type == "tool_result"]
        texts = [block.text or "" for block in self.content if block.type == "text"]
        if texts or not records:
            records.append({"role": self.role, "content": "\n".join(texts)})
        return records


def answer_record(blocks: Sequence[Block]) -> dict[str, Any]:
    """Return an answer as a chat message, with its thinking as reasoning.

    The texts are joined without a break, since calls and citations split them in mid sentence.
    """
    text = "".join(block.text or "" for block in blocks if block.type == "text")
    calls = [
        called(block.id or "", block.name or "", block.input or {})
        for block in blocks
        if block.type == "tool_use"
    ]
    record: dict[str, Any] = {"role": "assistant", "content": text}
    thoughts = [block.thinking for block in blocks if block.type == "thinking" and block.thinking]
    if thoughts:
        record["reasoning"] = "\n\n".join(thoughts)
    return record | {"tool_calls": calls} if calls else record


def called(call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call of a chat message; equal arguments in equal order have equal texts."""
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": call_id, "type": "function", "function": function}


def system_text(blocks: Sequence[Block]) -> str:
    """Return the system prompt, without the block of Claude Code that no two requests share."""
    texts = [block.text or "" for block in blocks]
    return "\n".join(text for text in texts if not text.startswith(BILLING))


def _result(block: Block) -> dict[str, Any]:
    text = "\n".join(part.text or "" for part in block.content)
    if block.is_error and not text.lower().startswith("error"):
        text = f"error: {text}"
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": text}
