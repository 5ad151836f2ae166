"""The content blocks of Anthropic's messages, and what they become as chat messages."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from caesura.runtime.run.content import Content, joined
from caesura.runtime.server.request.fields import MAX_MESSAGES, Name, NotEmpty, Part

BILLING = "x-anthropic-billing-header"
"""Claude Code begins a block of `system` with this, and the rest of it differs in each request."""
_THINKING = ("thinking", "redacted_thinking")
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    "image": ("source",),
    **dict.fromkeys(_THINKING, ()),
}
"""The types of blocks, and the fields that each must have."""
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "user": ("text", "tool_result", "image"),
    "assistant": ("text", "tool_use", *_THINKING),
    "system": ("text",),
}
"""The types of blocks that a message of a role may hold."""


def _texts(blocks: Sequence["Block"]) -> Sequence["Block"]:
    """Return the blocks of a system prompt; raise `ValueError` if one is not text."""
    for block in blocks:
        if block.type != "text":
            raise ValueError(f"a system prompt may hold text, not {block.type}")
    return blocks


def _listed(content: object) -> object:
    """Return content as a list of blocks."""
    if content is None:
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _url(source: object) -> object:
    """Return the URL of an image's source."""
    if not isinstance(source, Mapping):
        return source
    match source.get("type"):
        case "base64" if isinstance(source.get("data"), str):
            return f"data:{source.get('media_type') or 'image/png'};base64,{source['data']}"
        case "url" if isinstance(source.get("url"), str):
            return source["url"]
        case "file":
            raise ValueError("files are not kept here: send the image as base64 or url")
    raise ValueError("an image's source must be of type base64, with data, or url, with a url")


class Block(Part):
    """A content block of any type; `content` is that of a tool's result.

    `source` is the URL of an image: its address, or a data URL.
    """

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: Name | None = None
    input: dict[str, Any] | None = None
    tool_use_id: NotEmpty | None = None
    source: Annotated[str, BeforeValidator(_url)] | None = None
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
            if block.type not in ("text", "image"):
                raise ValueError(f"a tool's result may hold text and images, not {block.type}")
        return self


Blocks = Annotated[list[Block], Field(max_length=MAX_MESSAGES), BeforeValidator(_listed)]
Block.model_rebuild()
SystemBlocks = Annotated[Blocks, AfterValidator(_texts)]


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
        shown = [block for block in self.content if block.type in ("text", "image")]
        if shown or not records:
            records.append({"role": self.role, "content": _content(shown)})
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
    content = _content(block.content)
    if block.is_error:
        content = _as_error(content)
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}


def _as_error(content: Content) -> Content:
    """Return the content of a failed result, which begins with the word."""
    if not isinstance(content, str):
        return [{"type": "text", "text": "error:"}, *content]
    return content if content.lower().startswith("error") else f"error: {content}"


def _content(blocks: Sequence[Block]) -> Content:
    """Return blocks of text and images as the content of a chat message."""
    return joined(
        [
            {"type": "text", "text": block.text or ""}
            if block.type == "text"
            else {"type": "image_url", "image_url": {"url": block.source}}
            for block in blocks
        ]
    )
