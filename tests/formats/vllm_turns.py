"""A turn with one call as each of vLLM's tool parsers expects it, for formats without a row."""

import re

CALL = ("weather", {"city": "Paris", "days": 3})
"""The call of every turn."""

_JSON = '{"name": "weather", "arguments": {"city": "Paris", "days": 3}}'
_ARGUMENTS = '{"city": "Paris", "days": 3}'
_PYTHON = "weather(city='Paris', days=3)"
_QWEN = (
    "<function=weather>\n<parameter=city>Paris</parameter>\n"
    "<parameter=days>3</parameter>\n</function>"
)
_INVOKE = (
    '<invoke name="weather"><parameter name="city">Paris</parameter>'
    '<parameter name="days">3</parameter></invoke>'
)
_GLM = (
    "weather<arg_key>city</arg_key><arg_value>Paris</arg_value>"
    "<arg_key>days</arg_key><arg_value>3</arg_value>"
)


def _dsml(section: str, space: str = "") -> str:
    tag = f"｜DSML｜{space}"
    return (
        f'<{tag}{section}>\n<{tag}invoke name="weather">\n'
        f'<{tag}parameter name="city" string="true">Paris</{tag}parameter>\n'
        f'<{tag}parameter name="days" string="false">3</{tag}parameter>\n'
        f"</{tag}invoke>\n</{tag}{section}>"
    )


_MINIMAX_3 = "]<]minimax[>["

TURNS: dict[str, str] = {
    "apertus": f'<|tools_prefix|>[{{"weather": {_ARGUMENTS}}}]<|tools_suffix|>',
    "deepseek_v32": _dsml("function_calls"),
    "deepseek_v4": _dsml("tool_calls"),
    "deepseek_v41": _dsml("calls", " "),
    "dots": f"<dots_function_call>{_INVOKE}</dots_function_call>",
    "ernie45": f"<tool_call>\n{_JSON}\n</tool_call>",
    "functiongemma": (
        "<start_function_call>call:weather{city:<escape>Paris<escape>,days:<escape>3<escape>}"
        "<end_function_call>"
    ),
    "gemma4": '<|tool_call>call:weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>',
    "gigachat3": f"function call<|role_sep|>\n{_JSON}",
    "granite": f"<|tool_call|>[{_JSON}]",
    "granite-20b-fc": f"<function_call> {_JSON}",
    "granite4": f"<tool_call>\n{_JSON}\n</tool_call>",
    "hunyuan_a13b": f"<tool_calls>[{_JSON}]</tool_calls>",
    "hy_v3": (
        "<tool_calls>\n<tool_call>weather<tool_sep>\n"
        "<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n</tool_calls>"
    ),
    "hy_v4": f"<tool_calls><tool_call>{_GLM}</tool_call></tool_calls>",
    "inkling": (
        "<|message_model|>weather<|content_invoke_tool_json|>"
        f'{{"name": "weather", "args": {_ARGUMENTS}}}<|end_message|>'
    ),
    "internlm": f"<|action_start|><|plugin|>{_JSON}<|action_end|>",
    "jamba": f"<tool_calls>[{_JSON}]</tool_calls>",
    "k2_horizon": (
        "<ifm|tool_calls><ifm|tool_call>weather"
        "<ifm|arg_key>city</ifm|arg_key><ifm|arg_value>Paris</ifm|arg_value>"
        "<ifm|arg_key>days</ifm|arg_key><ifm|arg_value>3</ifm|arg_value>"
        "</ifm|tool_call></ifm|tool_calls>"
    ),
    "kimi_k3": (
        '<|open|>tools<|sep|><|open|>call tool="weather" index="1"<|sep|>'
        '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
        '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|>"
    ),
    "lfm2": f"<|tool_call_start|>[{_PYTHON}]<|tool_call_end|>",
    "ling3": f"<tool_call>{_GLM}</tool_call>",
    "longcat": f"<longcat_tool_call>{_JSON}</longcat_tool_call>",
    "mimo": f"<tool_call>{_QWEN}</tool_call>",
    "minicpm5": (
        '<function name="weather"><param name="city">Paris</param>'
        '<param name="days">3</param></function>'
    ),
    "minimax_m2": f"<minimax:tool_call>\n{_INVOKE}\n</minimax:tool_call>",
    "minimax_m3": (
        f'{_MINIMAX_3}<tool_call>{_MINIMAX_3}<invoke name="weather">'
        f"{_MINIMAX_3}<city>Paris{_MINIMAX_3}</city>{_MINIMAX_3}<days>3{_MINIMAX_3}</days>"
        f"{_MINIMAX_3}</invoke>{_MINIMAX_3}</tool_call>"
    ),
    "muse_glimmer": (
        "<|start|>assistant to=weather<|message|><atem:function_calls>"
        '<atem:invoke name="weather"><atem:parameter name="city">Paris</atem:parameter>'
        '<atem:parameter name="days">3</atem:parameter></atem:invoke>'
        "</atem:function_calls><|eom|>"
    ),
    "olmo3": f"<function_calls>\n{_PYTHON}\n</function_calls>",
    "phi4_mini_json": f"functools[{_JSON}]",
    "plamo3": (
        "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>"
        "<|plamo:begin_tool_name:plamo|>weather<|plamo:end_tool_name:plamo|>"
        "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>"
        f"{_ARGUMENTS}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
        "<|plamo:end_tool_requests:plamo|>"
    ),
    "poolside_v1": f"<tool_call>{_GLM}</tool_call>",
    "seed_oss": f"<seed:tool_call>\n{_QWEN}\n</seed:tool_call>",
    "step3": (
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="weather"><steptml:parameter name="city">Paris</steptml:parameter>'
        '<steptml:parameter name="days">3</steptml:parameter></steptml:invoke>'
        "<｜tool_call_end｜><｜tool_calls_end｜>"
    ),
    "step3p5": f"<tool_call>\n{_QWEN}\n</tool_call>",
    "xlam": f"[{_JSON}]",
}

TEXT_FIRST = frozenset(TURNS) - {"muse_glimmer", "xlam", "olmo3"}
"""Parsers that also find a call behind text."""

_SPECIAL = re.compile(r"<[^<>\s=]+>")


def markers_of(parser: str) -> list[str]:
    """The special tokens of the models that write such a turn."""
    if parser == "minimax_m3":
        return [_MINIMAX_3]
    return list(dict.fromkeys(_SPECIAL.findall(TURNS[parser])))
