"""A whole turn, read by vLLM's tool parser and by the row that it names."""

import json
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager

from tests.formats.world import StandIn, decode, stand_in

Calls = list[tuple[str, Any]]


def by_vllm(parser: str, model: StandIn, text: str, tools: Any) -> Calls:
    """The calls that vLLM's parser finds in a whole turn."""
    asked: list[Any] = [{"role": "user", "content": ""}]
    request = ChatCompletionRequest(messages=asked, tools=list(tools))
    made = ToolParserManager.get_tool_parser(parser)(model.tokenizer, request.tools)
    found = made.extract_tool_calls(text, request).tool_calls
    return [(call.function.name, json.loads(call.function.arguments or "")) for call in found]


def by_row(row: str, text: str, tools: Any) -> Calls:
    """The calls that the row finds in it."""
    model = stand_in(row)
    outcome = decode(model, model.by_bytes(text), tools, step=32)
    return [(name, json.loads(arguments)) for name, arguments in outcome.calls]
