"""Bodies of requests that are wrong in one field each, and what no answer to them may hold."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

INSIDES = re.compile(
    r"pydantic|Traceback|vllm\.|value_error|input_type=|input_value=|\[type=|errors\.pydantic"
    r"|<class |object at 0x|has no attribute|not subscriptable|unhashable|not iterable|Errno"
    r"|function-wrap|instance of|discriminator|unexpected keyword|\.py\b"
    r"|(?<![\w ])(?:Type|Key|Value|Attribute)Error"
)
"""Words of our own code, of vLLM's and of Python's."""
WRONG: tuple[Any, ...] = (7, -1, 2.5, "zebra", True, None, [], {}, [7], [["zebra"]], {"a": 7})
TOOL = {
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
ALLOWED = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "weather"}}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CHAT: Mapping[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ],
    "tools": [{"type": "function", "function": TOOL}],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": ALLOWED},
    "max_tokens": 4,
    "temperature": 0.5,
    "stop": ["x"],
    "logit_bias": {"7": 1},
    "n": 1,
    "stream_options": {"include_usage": True},
}
FORMED: Mapping[str, Any] = {
    "messages": [{"role": "user", "content": "Hello"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
    "logprobs": True,
    "top_logprobs": 1,
    "chat_template_kwargs": {"enable_thinking": False},
    "max_completion_tokens": 4,
}
MESSAGES: Mapping[str, Any] = {
    "max_tokens": 4,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "weather", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "text", "text": "sunny"}],
                }
            ],
        },
    ],
    "tools": [{"name": "weather", "description": "Tell.", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "stop_sequences": ["x"],
    "metadata": {"user_id": "ann"},
}
RESPONSES: Mapping[str, Any] = {
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "sunny"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]},
    ],
    "instructions": "Be brief.",
    "tools": [{"type": "function", **TOOL}],
    "tool_choice": "auto",
    "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
    "reasoning": {"effort": "low"},
    "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"},
    "max_output_tokens": 4,
    "store": False,
}
BODIES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", FORMED),
    ("/v1/messages", MESSAGES),
    ("/v1/responses", RESPONSES),
    ("/v1/responses/compact", {"input": "Hello", "instructions": "Be brief."}),
    ("/v1/conversations", {"items": RESPONSES["input"], "metadata": {"a": "b"}}),
)
"""A right body of each route that our own code reads, with most of its fields."""
OF_VLLM: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("/v1/completions", {"prompt": "Hello", "max_tokens": 4, "stop": ["x"], "logprobs": 1}),
    ("/v1/messages/count_tokens", {k: MESSAGES[k] for k in ("system", "messages", "tools")}),
    ("/tokenize", {"messages": CHAT["messages"], "tools": CHAT["tools"]}),
    ("/detokenize", {"tokens": [7, 8]}),
)
"""The same of routes that vLLM's server alone has."""


def wrong_bodies(body: Mapping[str, Any], model: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield bodies in which one value is wrong, or missing, each with that value's path."""
    whole = {"model": model, **body}
    for path, value in _paths(whole, ()):
        shown = ".".join(map(str, path))
        for wrong in WRONG:
            if type(wrong) is not type(value) or wrong != value:
                yield f"{shown} = {json.dumps(wrong)}", _with(whole, path, wrong)
        if isinstance(path[-1], str):
            yield f"{shown} is missing", _with(whole, path, ...)


def _paths(value: Any, before: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    steps = value.items() if isinstance(value, Mapping) else ()
    steps = enumerate(value) if isinstance(value, list) else steps
    for step, each in steps:
        yield (*before, step), each
        yield from _paths(each, (*before, step))


def _with(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    """Return JSON in which another value stands at a path, or none where it is `...`."""
    if not path:
        return wrong
    made = dict(value) if isinstance(value, Mapping) else list(value)
    made[path[0]] = _with(made[path[0]], path[1:], wrong)
    if made[path[0]] is ...:
        del made[path[0]]
    return made
