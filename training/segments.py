"""Turns conversations into tokens exactly as the runtime does, piece by piece.

The runtime encodes a prompt as one string. What the model writes is never encoded again, and
what the runtime appends (the result of an in-line call, the turn with tool responses) is encoded
on its own. Training on any other segmentation would show the model token sequences that it never
meets, so this module is the only place that knows where the pieces end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tasks.conversation import Conversation
from tasks.exchange import Call, Exchange

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
IM_END = "<|im_end|>"
ASSISTANT = "<|im_start|>assistant\n"
INLINE_END = ") ->"


class Encoder(Protocol):
    """Anything that turns text into token ids without adding special tokens."""

    def __call__(self, text: str) -> list[int]:
        """Return the ids of the tokens of ``text``."""


@dataclass(frozen=True)
class Segment:
    """A text that is encoded on its own; ``learned`` tells whether the model writes it."""

    text: str
    learned: bool


@cache
def _template() -> Any:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    # The filter of transformers and vLLM, which unlike Jinja's own does not escape HTML.
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def render(messages: Sequence[dict[str, Any]], tools: Any = None, generate: bool = False) -> str:
    """Render messages as ``apply_chat_template`` does, without needing a tokenizer."""
    return _template().render(messages=messages, tools=tools, add_generation_prompt=generate)


def call_text(call: Call) -> str:
    """Write a call as a Hermes block."""
    body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def user_turn(text: str) -> str:
    """Return what stands between the model's last ``<|im_end|>`` and its next turn."""
    return f"\n<|im_start|>user\n{text}{IM_END}\n{ASSISTANT}"


def bridge(results: Sequence[str]) -> str:
    """Return what the runtime appends after a turn with calls: their results, the next turn."""
    return user_turn("\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in results))


def inline_result(result: str) -> str:
    """Return what the runtime appends after ``) ->``."""
    return f" {result}]"


def prompt(system: str | None, tools: Any, user: str) -> str:
    """Render the first prompt of a conversation."""
    messages = [{"role": "user", "content": user}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return render(messages, tools or None, generate=True)


def exchange_segments(exchange: Exchange) -> list[Segment]:
    """Return the pieces that follow the prompt of one exchange."""
    segments = []
    for step in exchange.steps:
        segments.append(Segment("\n".join(call_text(call) for call in step) + IM_END, True))
        segments.append(Segment(bridge([call.result for call in step]), False))
    text = ""
    for piece in exchange.answer:
        if isinstance(piece, str):
            text += piece
            continue
        text += f"[{piece.name}({next(iter(piece.arguments.values()))}{INLINE_END}"
        segments += [Segment(text, True), Segment(inline_result(piece.result), False)]
        text = ""
    return [*segments, Segment(text + IM_END, True)]


def conversation_segments(conversation: Conversation) -> list[Segment]:
    """Return all pieces of a conversation in order."""
    first, *later = conversation.exchanges
    segments = [Segment(prompt(conversation.system, conversation.tools, first.user), False)]
    segments += exchange_segments(first)
    for exchange in later:
        segments.append(Segment(user_turn(exchange.user), False))
        segments += exchange_segments(exchange)
    return segments


def encode(segments: Sequence[Segment], encoder: Encoder) -> tuple[list[int], list[bool]]:
    """Encode every piece on its own; return the ids and which of them carry loss."""
    ids: list[int] = []
    learned: list[bool] = []
    for segment in segments:
        piece = encoder(segment.text)
        ids += piece
        learned += [segment.learned] * len(piece)
    return ids, learned
