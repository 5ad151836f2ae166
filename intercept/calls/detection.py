"""Detection of a model's call formats by the texts of its chat template."""

import re
from collections.abc import Mapping

from caesura.intercept.calls.formats import (
    BY_PARSER,
    DEEPSEEK_V3,
    DEEPSEEK_V4,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    DEEPSEEK_V41,
    GLM,
    HARMONY,
    HERMES,
    HUNYUAN_A13B,
    INLINE,
    INTERNLM,
    KIMI_K2,
    LLAMA3_JSON,
    LONGCAT,
    MINIMAX_M2,
    MISTRAL,
    PYTHONIC,
    QWEN3_CODER,
    REACT,
    SEED_OSS,
)

# The texts in a chat template that identify a format. All texts of a row must be there, and the
# first such row counts. Other models write `<function=` between tags of their own, and
# `<|python_start|>` around code. A row without a format is that of a family whose calls neither a
# row nor a parser of vLLM's reads.
_SIGNS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<｜tool▁call▁begin｜>", "```json"), DEEPSEEK_V3.name),
    (("<｜tool▁call▁begin｜>",), DEEPSEEK_V31.name),
    (("｜DSML｜", "function_calls"), DEEPSEEK_V32.name),
    (("｜DSML｜ ",), DEEPSEEK_V41.name),
    (("｜DSML｜",), DEEPSEEK_V4.name),
    (("]<]minimax[>[",), f"{BY_PARSER}minimax_m3"),
    (("<minimax:tool_call>",), MINIMAX_M2.name),
    (("<seed:tool_call>",), SEED_OSS.name),
    (("<longcat_tool_call>",), LONGCAT.name),
    (("<dots_function_call>",), f"{BY_PARSER}dots"),
    (("<ifm|tool_call",), f"{BY_PARSER}k2_horizon"),
    (("<|plamo:begin_tool_request",), f"{BY_PARSER}plamo3"),
    (("<|content_invoke_tool_json|>",), f"{BY_PARSER}inkling"),
    (("<start_function_call>",), f"{BY_PARSER}functiongemma"),
    (("<tool_calls>", "<tool_sep>"), f"{BY_PARSER}hy_v3"),
    (("<tool_calls>", "<arg_key>"), f"{BY_PARSER}hy_v4"),
    (("<tool_calls>[",), HUNYUAN_A13B.name),
    (("<tool_call>", "followed by a JSON list"), f"{BY_PARSER}granite"),
    (("<tool_call>", "<function="), QWEN3_CODER.name),
    (("<tool_call>", "<arg_key>"), GLM.name),
    (("<|tool_call_begin|>",), KIMI_K2.name),
    (("<tool_call>",), HERMES.name),
    (("<|tool_call|>",), f"{BY_PARSER}granite"),
    (("<|tool_call>", "<tool_call|>"), f"{BY_PARSER}gemma4"),
    (("<|tool_call_start|>",), f"{BY_PARSER}lfm2"),
    (("<|tool_list_start|>",), f"{BY_PARSER}lfm2"),
    (("<|role_sep|>", "function call"), f"{BY_PARSER}gigachat3"),
    (("<|tools_prefix|>",), f"{BY_PARSER}apertus"),
    (("<|action_start|>", "<|plugin|>"), INTERNLM.name),
    (("<｜tool_calls_begin｜>",), f"{BY_PARSER}step3"),
    (("[TOOL_CALLS]",), MISTRAL.name),
    (("functools[",), f"{BY_PARSER}phi4_mini_json"),
    (("[func_name1(",), PYTHONIC.name),
    (("<function_calls>",), f"{BY_PARSER}olmo3"),
    (('"parameters": dictionary of',), LLAMA3_JSON.name),
    (("<|python_start|>",), PYTHONIC.name),
    (("<|python_tag|>", "<function="), ""),  # Functionary 3.1
    (("<|python_tag|>",), LLAMA3_JSON.name),
    (("<|call|>",), HARMONY.name),
    (("Action Input:",), REACT.name),
)

SIGNED = tuple(dict.fromkeys(name for _, name in _SIGNS if name))
"""The names of the formats that a chat template can show."""

# An in-line call has a space after its arrow and no line break; Python signatures have arrows too.
_INLINE_SIGN = re.compile(r"\[\w+\([^\[\]\n]*\) -> ")


def detect(chat_template: str | Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the names of the call formats that a model's chat template shows; empty if none.

    A mapping of templates by name counts as all of them together.
    """
    if isinstance(chat_template, Mapping):
        chat_template = "\n".join(chat_template.values())
    template = chat_template or ""
    signed = (name for signs, name in _SIGNS if all(sign in template for sign in signs))
    found = [name for name in [next(signed, "")] if name]
    if _INLINE_SIGN.search(template):
        found.append(INLINE)
    return tuple(found)
