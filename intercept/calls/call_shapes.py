"""How a model is made to write a call: the texts around its arguments, for a grammar.

A row of `caesura.intercept.calls.formats` says how to find a call among all the ways in which
models write it. A row here says one exact way, which that format's parser reads.
"""

from dataclasses import dataclass
from typing import Literal

from caesura.intercept.calls.formats import (
    DEEPSEEK_V3,
    DEEPSEEK_V4,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    DEEPSEEK_V41,
    DSML,
    GLM,
    HARMONY,
    HERMES,
    HUNYUAN_A13B,
    INLINE,
    INLINE_CLOSE,
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
    CallFormat,
)

NAME = "{NAME}"
"""Stands for the tool's name in a shape."""

NUMBER = "{NUMBER}"
"""Stands for a whole number in a shape."""


Style = Literal[
    "json", "qwen_xml", "glm_xml", "minimax_xml", "deepseek_xml", "deepseek_v4_1_xml", "python"
]
"""How arguments are written; all but `python` are XGrammar's names."""


@dataclass(frozen=True, slots=True)
class CallShape:
    """One exact way of writing calls.

    `opens` is the text after which nothing but a call may follow. `begin` and `end` surround the
    arguments of a call, and `before` and `after` all calls of a turn. `between` separates two
    calls; None where a turn holds one call only. `style` says how the arguments are written.
    `excludes` are texts that no value holds. With `bars_arrow` no string of Python arguments holds
    `->`. `from_start` is a regular expression for the first characters of a turn without calls,
    where calls begin a turn.
    """

    opens: str
    begin: str
    end: str
    style: Style = "json"
    between: str | None = ""
    before: str = ""
    after: str = ""
    excludes: tuple[str, ...] = ()
    bars_arrow: bool = False
    from_start: str = ""


def _functions(form: CallFormat) -> CallShape:
    """Return the shape of calls in `<function=NAME>`, each between the form's markers."""
    return CallShape(
        form.opens[0],
        f"{form.opens[0]}\n<function={NAME}>\n",
        f"\n</function>\n{form.closes}",
        style="qwen_xml",
        between="\n",
        excludes=("<parameter=",),
    )


def _invoked(form: CallFormat, style: Style, tag: str = "") -> CallShape:
    """Return the shape of calls in `<invoke name="NAME">`; `tag` begins the tags within."""
    return CallShape(
        form.opens[0],
        f'<{tag}invoke name="{NAME}">\n',
        f"\n</{tag}invoke>",
        style=style,
        between="\n",
        before=f"{form.opens[0]}\n",
        after=f"\n{form.closes}",
        excludes=(f"<{tag}parameter name=",),
    )


_SHAPES = {
    HERMES.name: CallShape(
        HERMES.opens[0],
        f'<tool_call>\n{{"name": "{NAME}", "arguments": ',
        "}\n</tool_call>",
        between="\n",
    ),
    QWEN3_CODER.name: _functions(QWEN3_CODER),
    GLM.name: CallShape(
        GLM.opens[0],
        f"<tool_call>{NAME}\n",
        "\n</tool_call>",
        style="glm_xml",
        between="\n",
        excludes=("<arg_value>",),
    ),
    SEED_OSS.name: _functions(SEED_OSS),
    MINIMAX_M2.name: _invoked(MINIMAX_M2, "minimax_xml"),
    DEEPSEEK_V32.name: _invoked(DEEPSEEK_V32, "deepseek_xml", DSML),
    DEEPSEEK_V4.name: _invoked(DEEPSEEK_V4, "deepseek_xml", DSML),
    DEEPSEEK_V41.name: _invoked(DEEPSEEK_V41, "deepseek_v4_1_xml", f"{DSML} "),
    LONGCAT.name: CallShape(
        LONGCAT.opens[0],
        f'{LONGCAT.opens[0]}\n{{"name": "{NAME}", "arguments": ',
        f"}}\n{LONGCAT.closes}",
        between="\n",
    ),
    HUNYUAN_A13B.name: CallShape(
        HUNYUAN_A13B.opens[0],
        f'{{"name": "{NAME}", "arguments": ',
        "}",
        between=", ",
        before=f"{HUNYUAN_A13B.opens[0]}[",
        after=f"]{HUNYUAN_A13B.closes}",
    ),
    INTERNLM.name: CallShape(
        INTERNLM.opens[0],
        f'{INTERNLM.opens[0]}\n{{"name": "{NAME}", "parameters": ',
        f"}}\n{INTERNLM.closes}",
        between="\n",
    ),
    LLAMA3_JSON.name: CallShape(
        '{"name": "', f'{{"name": "{NAME}", "parameters": ', "}", between="; "
    ),
    PYTHONIC.name: CallShape(
        "[",
        f"{NAME}(",
        ")",
        style="python",
        between=", ",
        before="[",
        after="]",
        from_start=r"[ \n]{0,4}([^\[<\s]|<[^|])",
    ),
    MISTRAL.name: CallShape(
        MISTRAL.opens[0],
        f'{{"name": "{NAME}", "arguments": ',
        "}",
        between=", ",
        before="[TOOL_CALLS][",
        after="]",
    ),
    DEEPSEEK_V3.name: CallShape(
        DEEPSEEK_V3.section[0],
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{NAME}\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        between="\n",
        before=DEEPSEEK_V3.section[0],
        after=DEEPSEEK_V3.section[1],
    ),
    DEEPSEEK_V31.name: CallShape(
        DEEPSEEK_V31.section[0],
        f"<｜tool▁call▁begin｜>{NAME}<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        before=DEEPSEEK_V31.section[0],
        after=DEEPSEEK_V31.section[1],
    ),
    KIMI_K2.name: CallShape(
        KIMI_K2.section[0],
        f"<|tool_call_begin|>functions.{NAME}:{NUMBER}<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        before=KIMI_K2.section[0],
        after=KIMI_K2.section[1],
    ),
    HARMONY.name: CallShape(
        HARMONY.opens[0],
        f"{HARMONY.opens[0]}functions.{NAME} <|constrain|>json<|message|>",
        "<|call|>",
        between=None,
    ),
    REACT.name: CallShape("Action: ", f"Action: {NAME}\nAction Input: ", "\n", between=None),
    INLINE: CallShape(
        f"[{NAME}(", f"[{NAME}(", INLINE_CLOSE, style="python", between=None, bars_arrow=True
    ),
}

_MISTRAL_V11 = CallShape(MISTRAL.opens[0], f"[TOOL_CALLS]{NAME}[ARGS]", "")
"""Mistral's form since version 11 of its tokenizers, which have a token `[ARGS]`."""

ONE_AT_A_TIME: frozenset[str] = frozenset({INLINE, REACT.name, HARMONY.name})
"""Formats in which the model stops at each call, so that a turn never holds two."""


def shape_of(name: str, has_args_token: bool = False) -> CallShape | None:
    """Return the shape of the calls of a format, or None where a grammar can't describe them.

    `has_args_token` says whether the model's vocabulary has Mistral's `[ARGS]`.
    """
    if name == MISTRAL.name and has_args_token:
        return _MISTRAL_V11
    return _SHAPES.get(name)
