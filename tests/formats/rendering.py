"""How each format writes calls: what its models' chat templates render."""

import json
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any]


class Unwritable(ValueError):
    """The format has no way to write the call; the message says why."""


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain(value: Any) -> str:
    """A text stands as it is, anything else as JSON."""
    return value if isinstance(value, str) else dumped(value)


def hermes(calls: Sequence[Call]) -> str:
    return "\n".join(
        f"<tool_call>\n{dumped({'name': name, 'arguments': arguments})}\n</tool_call>"
        for name, arguments in calls
    )


def qwen3_coder(calls: Sequence[Call], section: str = "tool_call") -> str:
    def write(call: Call) -> str:
        for key, value in call.arguments.items():
            if "</parameter>" in plain(value) or "<parameter=" in plain(value) or ">" in key:
                raise Unwritable("a value holds the format's own tags")
        parameters = "".join(
            f"<parameter={key}>\n{plain(value)}\n</parameter>\n"
            for key, value in call.arguments.items()
        )
        return f"<{section}>\n<function={call.name}>\n{parameters}</function>\n</{section}>"

    return "\n".join(map(write, calls))


def glm(calls: Sequence[Call]) -> str:
    def write(call: Call) -> str:
        for value in call.arguments.values():
            if "</arg_value>" in plain(value):
                raise Unwritable("a value holds the format's own tags")
        parameters = "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{plain(value)}</arg_value>\n"
            for key, value in call.arguments.items()
        )
        return f"<tool_call>{call.name}\n{parameters}</tool_call>"

    return "\n".join(map(write, calls))


def seed_oss(calls: Sequence[Call]) -> str:
    return qwen3_coder(calls, "seed:tool_call")


def invoked(calls: Sequence[Call], section: str, tag: str = "") -> str:
    """Calls in tags that begin with `tag`; DeepSeek's say of a value whether it is a text."""

    def write(call: Call) -> str:
        for value in call.arguments.values():
            if f"</{tag}parameter>" in plain(value) or f"<{tag}parameter name=" in plain(value):
                raise Unwritable("a value holds the format's own tags")
        parameters = "".join(
            f'<{tag}parameter name="{key}"{kind(value) if tag else ""}>{plain(value)}'
            f"</{tag}parameter>\n"
            for key, value in call.arguments.items()
        )
        return f'<{tag}invoke name="{call.name}">\n{parameters}</{tag}invoke>\n'

    return f"<{section}>\n{''.join(map(write, calls))}</{section}>"


def kind(value: Any) -> str:
    return f' string="{"true" if isinstance(value, str) else "false"}"'


def minimax_m2(calls: Sequence[Call]) -> str:
    return invoked(calls, "minimax:tool_call")


def deepseek_v32(calls: Sequence[Call]) -> str:
    return invoked(calls, "｜DSML｜function_calls", "｜DSML｜")


def deepseek_v4(calls: Sequence[Call]) -> str:
    return invoked(calls, "｜DSML｜tool_calls", "｜DSML｜")


def deepseek_v41(calls: Sequence[Call]) -> str:
    return invoked(calls, "｜DSML｜ calls", "｜DSML｜ ")


def longcat(calls: Sequence[Call]) -> str:
    return "\n".join(
        "<longcat_tool_call>\n"
        + dumped({"name": name, "arguments": arguments})
        + "\n</longcat_tool_call>"
        for name, arguments in calls
    )


def hunyuan_a13b(calls: Sequence[Call]) -> str:
    listed = dumped([{"name": name, "arguments": arguments} for name, arguments in calls])
    return f"<tool_calls>{listed}</tool_calls>"


def internlm(calls: Sequence[Call]) -> str:
    return "\n".join(
        "<|action_start|><|plugin|>\n"
        + dumped({"name": name, "parameters": arguments})
        + "\n<|action_end|>"
        for name, arguments in calls
    )


def llama3_json(calls: Sequence[Call]) -> str:
    return "; ".join(dumped({"name": name, "parameters": args}) for name, args in calls)


def python_call(call: Call) -> str:
    if not all(part.isidentifier() for part in call.name.split(".")):
        raise Unwritable("the tool's name is no Python name")
    if not all(key.isidentifier() and not iskeyword(key) for key in call.arguments):
        raise Unwritable("an argument's name is no Python name")
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


def pythonic(calls: Sequence[Call]) -> str:
    return f"[{', '.join(map(python_call, calls))}]"


def mistral(calls: Sequence[Call]) -> str:
    return "[TOOL_CALLS]" + dumped([{"name": name, "arguments": args} for name, args in calls])


def mistral_v11(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{dumped(arguments)}" for name, arguments in calls)


def deepseek_v3(calls: Sequence[Call]) -> str:
    written = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{dumped(arguments)}\n```"
        "<｜tool▁call▁end｜>"
        for name, arguments in calls
    )
    return f"<｜tool▁calls▁begin｜>{written}<｜tool▁calls▁end｜>"


def deepseek_v31(calls: Sequence[Call]) -> str:
    written = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{dumped(arguments)}<｜tool▁call▁end｜>"
        for name, arguments in calls
    )
    return f"<｜tool▁calls▁begin｜>{written}<｜tool▁calls▁end｜>"


def kimi_k2(calls: Sequence[Call]) -> str:
    written = "".join(
        f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>"
        f"{dumped(arguments)}<|tool_call_end|>"
        for index, (name, arguments) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{written}<|tool_calls_section_end|>"


def harmony(calls: Sequence[Call]) -> str:
    (name, arguments) = only(calls)
    return (
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
        f"{dumped(arguments)}<|call|>"
    )


def react(calls: Sequence[Call]) -> str:
    (name, arguments) = only(calls)
    return f"\nAction: {name}\nAction Input: {dumped(arguments)}\n"


def inline(calls: Sequence[Call]) -> str:
    call = only(calls)
    if ") ->" in python_call(call):
        raise Unwritable("a value holds the format's own arrow")
    return f"[{python_call(call)} ->"


def only(calls: Sequence[Call]) -> Call:
    """These formats stop at each call."""
    (call,) = calls
    return call


RENDER: dict[str, Callable[[Sequence[Call]], str]] = {
    render.__name__: render
    for render in (
        hermes,
        qwen3_coder,
        glm,
        seed_oss,
        minimax_m2,
        deepseek_v32,
        deepseek_v4,
        deepseek_v41,
        longcat,
        hunyuan_a13b,
        internlm,
        llama3_json,
        pythonic,
        mistral,
        mistral_v11,
        deepseek_v3,
        deepseek_v31,
        kimi_k2,
        harmony,
        react,
        inline,
    )
}
"""By name; `mistral_v11` is how tokenizers from version 11 on write the row `mistral`."""

ONE_AT_A_TIME = frozenset({"harmony", "react", "inline"})
