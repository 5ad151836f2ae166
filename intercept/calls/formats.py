"""The table of call formats that the engine watches for.

A row says which bytes open a call, which bytes close it, and where the request pauses. A call in
the middle of a sentence pauses at its close. Other calls pause at the end of their turn, so that
all calls of the turn run in parallel. Families that write calls alike share what makes their rows.
`docs/reference/formats.md` shows a call in each format.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

KEY = r'\{\s*"name"\s*:\s*"([^"\\]{1,64})"'
"""A pattern for the begin of a JSON object that names its tool; the group is the name."""

NAME = r"([^\s<>(){}\[\]|]{1,64})"
"""A pattern for a tool's name before a tag or a bracket."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One way of writing calls.

    `opens`: texts that open a call. `closes`: the text that closes a call; None where its JSON
    closes it, or where the call lasts to the end of the turn. `pause`: `call` pauses at the token
    that completes `closes`, `turn` at the token that ends the turn. `anchors`: texts that open a
    call only as the first text of a turn. Without `opens` and `anchors` any text may hold calls.
    `certain`: text that opens a call is never meant for the user, so text that cannot be parsed is
    a malformed call and not prose.

    `body` is the kind of content: `json`, where `closes` is ignored while an object is open;
    `line`, the same if the line begins with JSON; or `text`. `inner` are tags within a call: after
    the first tag, `closes` counts only directly after the second. `breaks` end a call even within
    its JSON. `section` are the texts around all calls of a turn.

    `named` is a pattern for the tool's name. `telling` matches a text that is certainly a call, so
    that the call may be announced before it ends. Both patterns begin at the opener. `shape` shows
    a call to a model that has written a malformed one. `parser` names vLLM's tool parser for the
    format, which vLLM's server is given; None if it is given ours. `guarded`: an opener counts only
    where a call may follow it (`call_body.begins_call`); elsewhere it is a mention. `thinks`: the
    markers of `caesura.intercept.calls.thinking` count; other model families have channels.
    `in_code`: an opener that is plain text counts in code too (`mentions.Code`). `results`:
    texts that open a call's result, which the model must not write itself; behind a call, at the
    begin of a line, they end the turn. `keys`: a call is a JSON object with its `name`, or a list
    of such objects, and one of these keys holds the arguments; empty where another parser reads
    the calls.
    """

    name: str
    opens: tuple[str, ...]
    closes: str | None
    pause: Literal["call", "turn"]
    anchors: tuple[str, ...] = ()
    certain: bool = True
    body: Literal["json", "line", "text"] = "text"
    inner: tuple[str, str] | None = None
    breaks: tuple[str, ...] = ()
    section: tuple[str, str] = ("", "")
    named: str = ""
    telling: str = ""
    shape: str = ""
    parser: str | None = None
    guarded: bool = False
    thinks: bool = True
    in_code: bool = False
    results: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def opens_anywhere(self) -> bool:
        """Whether a call has no known begin, so that every turn may hold one."""
        return not self.opens and not self.anchors


INLINE_CLOSE = ") ->"

HERMES = CallFormat(
    "hermes",
    ("<tool_call>",),
    "</tool_call>",
    "turn",
    body="json",
    named=KEY.removeprefix(r"\{\s*"),
    telling=rf'<tool_call>\s*{KEY}\s*,\s*"arguments"\s*:\s*\{{',
    shape='<tool_call>{"name": NAME, "arguments": {...}}</tool_call>',
    parser="hermes",
    guarded=True,
    results=("<tool_response>",),
)
QWEN3_CODER = CallFormat(
    "qwen3_coder",
    ("<tool_call>",),
    "</tool_call>",
    "turn",
    inner=("<function=", "</function>"),
    named=rf"<function={NAME}>",
    shape="<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>",
    guarded=True,
    results=("<tool_response>",),
)


def unwrapped(tools: Iterable[str]) -> CallFormat:
    """Return `qwen3_coder` for calls without `<tool_call>`, which its models often leave out.

    Such a call opens only at the beginning of a line and with the name of an offered tool, so
    that text which mentions the tag stays text.
    """
    heads = tuple(f"<function={name}>" for name in tools)
    return CallFormat(
        QWEN3_CODER.name,
        tuple(f"\n{head}" for head in heads),
        QWEN3_CODER.closes,
        "turn",
        anchors=heads,
        certain=False,
        inner=("", "</function>"),
        named=QWEN3_CODER.named,
        shape=QWEN3_CODER.shape,
        results=QWEN3_CODER.results,
    )


GLM = CallFormat(
    "glm",
    ("<tool_call>",),
    "</tool_call>",
    "turn",
    inner=("<arg_key>", "</arg_value>"),
    named=rf"<tool_call>\s*{NAME}",
    shape="<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>",
    guarded=True,
    results=("<tool_response>",),
)
LLAMA3_JSON = CallFormat(
    "llama3_json",
    (),
    None,
    "turn",
    anchors=("<|python_tag|>", "{"),
    certain=False,
    named=KEY,
    telling=rf'(?:<\|python_tag\|>)?\s*{KEY}\s*,\s*"(?:parameters|arguments)"\s*:\s*\{{',
    shape='{"name": NAME, "parameters": {...}}',
    parser="llama3_json",
)
PYTHONIC = CallFormat(
    "pythonic",
    (),
    None,
    "turn",
    anchors=("<|python_start|>", "["),
    certain=False,
    named=r"\[\s*([A-Za-z_][\w.]{0,63})\(",
    telling=r"(?:<\|python_start\|>)?\s*\[\s*[A-Za-z_][\w.]*\(\s*(?:\w+\s*=|\))",
    shape="[NAME(KEY=VALUE, ...)]",
    parser="llama4_pythonic",
)
MISTRAL = CallFormat(
    "mistral",
    ("[TOOL_CALLS]",),
    None,
    "turn",
    body="json",
    named=rf"{KEY}|\[TOOL_CALLS\]\s*([\w.-]{{1,64}})\s*(?=[\[{{])",
    telling=rf"\[TOOL_CALLS\]\s*(?:\[?\s*{KEY}|[\w.-]{{1,64}}\s*(?:\[ARGS\]\s*)?\{{)",
    shape='[TOOL_CALLS][{"name": NAME, "arguments": {...}}] or [TOOL_CALLS]NAME[ARGS]{...}',
    parser="mistral",
    guarded=True,
    results=("[TOOL_RESULTS]",),
)
DEEPSEEK_V3 = CallFormat(
    "deepseek_v3",
    ("<｜tool▁call▁begin｜>",),
    "<｜tool▁call▁end｜>",
    "turn",
    body="json",
    section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    named=rf"<｜tool▁sep｜>{NAME}",
    telling=rf"<｜tool▁call▁begin｜>\w+<｜tool▁sep｜>{NAME}\n```json\n\{{",
    shape="function<｜tool▁sep｜>NAME and a block of JSON",
    parser="deepseek_v3",
    guarded=True,
    results=("<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>"),
)
DEEPSEEK_V31 = CallFormat(
    "deepseek_v31",
    ("<｜tool▁call▁begin｜>",),
    "<｜tool▁call▁end｜>",
    "turn",
    body="json",
    section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    named=rf"<｜tool▁call▁begin｜>{NAME}",
    telling=rf"<｜tool▁call▁begin｜>{NAME}<｜tool▁sep｜>\{{",
    shape="NAME<｜tool▁sep｜>{...}",
    parser="deepseek_v31",
    guarded=True,
    results=("<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>"),
)
KIMI_K2 = CallFormat(
    "kimi_k2",
    ("<|tool_call_begin|>",),
    "<|tool_call_end|>",
    "turn",
    body="json",
    section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    named=r"<\|tool_call_begin\|>\s*(?:functions\.)?([^\s:<]{1,64})",
    telling=(
        r"<\|tool_call_begin\|>\s*(?:functions\.)?[^\s:<]{1,64}:\d+"
        r"\s*<\|tool_call_argument_begin\|>\s*\{"
    ),
    shape="functions.NAME:0<|tool_call_argument_begin|>{...}",
    parser="kimi_k2",
    guarded=True,
    results=("<|im_system|>",),
)
HARMONY = CallFormat(
    "harmony",
    ("<|channel|>commentary to=", "<|channel|>analysis to=", "<|start|>assistant to="),
    "<|call|>",
    "turn",
    anchors=("to=",),
    named=r"to=(?:functions\.)?([\w.-]{1,64})",
    shape="<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>",
    parser="openai",
    thinks=False,
    in_code=True,
)
_LABELS = ("Action:", "action:", "Action Input:", "Action input:", "action input:")
REACT = CallFormat(
    "react",
    tuple(
        f"\n{written}"
        for label in _LABELS
        for written in (label, f"**{label}**", f"**{label[:-1]}**:")
    ),
    "\n",
    "call",
    body="line",
    breaks=("Observation:",),
    named=(
        r"[Aa]ction(?::\*\*|\*\*:|:)[ \t]*[`*\"']*([^\s`*\"']{1,64})[^\n]*"
        r"\n\s*\**[Aa]ction [Ii]nput\b"
    ),
)
INLINE = "inline"


DSML = "｜DSML｜"
"""What stands at the begin of all tags of DeepSeek's since V3.2; one token of its vocabulary."""


def _invoked(name: str, section: str, tag: str = "", results: tuple[str, ...] = ()) -> CallFormat:
    """Return the row of a family that writes `<invoke name="NAME">` in a section of calls.

    `tag` is what stands before `invoke` and `parameter` in their tags. The section is the opener
    and the closer, since tags within it are plain text.
    """
    return CallFormat(
        name,
        (f"<{section}>",),
        f"</{section}>",
        "turn",
        inner=(f"<{tag}invoke name=", f"</{tag}invoke>"),
        named=r"""invoke name=["']?([^\s<>"']{1,64})""",
        shape=(
            f'<{section}><{tag}invoke name="NAME"><{tag}parameter name="KEY">VALUE'
            f"</{tag}parameter></{tag}invoke></{section}>"
        ),
        parser=name,
        guarded=True,
        results=results,
    )


SEED_OSS = CallFormat(
    "seed_oss",
    ("<seed:tool_call>",),
    "</seed:tool_call>",
    "turn",
    inner=("<function=", "</function>"),
    named=rf"<function={NAME}>",
    shape=(
        "<seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function>"
        "</seed:tool_call>"
    ),
    parser="seed_oss",
    guarded=True,
)
MINIMAX_M2 = _invoked("minimax_m2", "minimax:tool_call")
DEEPSEEK_V32 = _invoked("deepseek_v32", f"{DSML}function_calls", DSML, ("<function_results>",))
DEEPSEEK_V4 = _invoked("deepseek_v4", f"{DSML}tool_calls", DSML, ("<tool_result>",))
DEEPSEEK_V4_MISSPELT = replace(
    DEEPSEEK_V4, opens=(f"<{DSML}toolcalls>", f"<{DSML}tool>"), certain=False
)
"""The openers that vLLM's parser has seen DeepSeek V4 write by mistake."""
DEEPSEEK_V41 = _invoked("deepseek_v41", f"{DSML} calls", f"{DSML} ", ("<tool_result>",))


def _marked(
    name: str,
    opens: str,
    closes: str,
    keys: tuple[str, ...] = ("arguments",),
    several: bool = False,
) -> CallFormat:
    """Return the row of a family that writes calls as JSON between markers.

    One of `keys` holds the arguments, and with `several` the JSON is a list.
    """
    call = f'{{"name": NAME, "{keys[0]}": {{...}}}}'
    return CallFormat(
        name,
        (opens,),
        closes,
        "turn",
        body="json",
        named=KEY.removeprefix(r"\{\s*"),
        telling=(
            re.escape(opens) + (r"\s*\[" if several else "")
            + rf'\s*{KEY}\s*,\s*"(?:{"|".join(keys)})"\s*:\s*\{{'
        ),
        shape=f"{opens}[{call}, ...]{closes}" if several else f"{opens}{call}{closes}",
        parser=name,
        guarded=True,
        keys=keys,
    )  # fmt: skip


LONGCAT = _marked("longcat", "<longcat_tool_call>", "</longcat_tool_call>")
HUNYUAN_A13B = _marked("hunyuan_a13b", "<tool_calls>", "</tool_calls>", several=True)
INTERNLM = _marked(
    "internlm", "<|action_start|><|plugin|>", "<|action_end|>", ("parameters", "arguments")
)


TURN_FORMATS = {
    form.name: form
    for form in (
        HERMES,
        QWEN3_CODER,
        GLM,
        SEED_OSS,
        MINIMAX_M2,
        LONGCAT,
        HUNYUAN_A13B,
        INTERNLM,
        LLAMA3_JSON,
        PYTHONIC,
        MISTRAL,
        DEEPSEEK_V3,
        DEEPSEEK_V31,
        DEEPSEEK_V32,
        DEEPSEEK_V4,
        DEEPSEEK_V41,
        KIMI_K2,
        HARMONY,
    )
}
"""Formats whose calls end with the turn."""

NAMES = (*TURN_FORMATS, REACT.name, INLINE)

BY_PARSER = "vllm:"
"""How the name of a format begins that has no row; the name of vLLM's tool parser follows."""

_PARSERS_OPENERS: dict[str, tuple[str, ...]] = {
    "apertus": ("<|tools_prefix|>",),
    "deepseek_v32": ("<｜DSML｜function_calls>",),
    "deepseek_v4": ("<｜DSML｜tool_calls>", "<｜DSML｜toolcalls>", "<｜DSML｜tool>"),
    "deepseek_v41": ("<｜DSML｜ calls>",),
    "dots": ("<dots_function_call>",),
    "ernie45": ("<tool_call>",),
    "functiongemma": ("<start_function_call>",),
    "gemma4": ("<|tool_call>",),
    "gigachat3": ("function call<|role_sep|>", "<|function_call|>"),
    "granite": ("<|tool_call|>", "<tool_call>"),
    "granite-20b-fc": ("<function_call>",),
    "granite4": ("<tool_call>",),
    "hunyuan_a13b": ("<tool_calls>",),
    "hy_v3": ("<tool_calls",),
    "hy_v4": ("<tool_calls",),
    "internlm": ("<|action_start|>",),
    "jamba": ("<tool_calls>",),
    "k2_horizon": ("<ifm|tool_call",),
    "lfm2": ("<|tool_call_start|>",),
    "ling3": ("<tool_call>",),
    "longcat": ("<longcat_tool_call>",),
    "mimo": ("<tool_call>",),
    "minicpm5": ("<function",),
    "minimax_m2": ("<minimax:tool_call>",),
    "minimax_m3": ("]<]minimax[>[<tool_call>",),
    "olmo3": ("<function_calls>",),
    "phi4_mini_json": ("functools",),
    "plamo3": ("<|plamo:begin_tool_requests:plamo|>",),
    "poolside_v1": ("<tool_call>",),
    "seed_oss": ("<seed:tool_call>",),
    "step3": ("<｜tool_calls_begin｜>",),
}
"""The texts without which vLLM's parser of this name finds no call."""

# The ways in which the models of vLLM's parsers write the name of a tool.
_ANY_NAME = (
    rf"""{KEY}|(?:invoke|function|call) (?:name|tool)=["']?([^\s<>"']{{1,64}})"""
    rf"|<function={NAME}>"
)


def by_parser(parser: str) -> CallFormat:
    """Return the format that vLLM's tool parser of this name reads once the turn has ended."""
    return CallFormat(
        f"{BY_PARSER}{parser}",
        _PARSERS_OPENERS.get(parser, ()),
        None,
        "turn",
        certain=False,
        named=_ANY_NAME,
        parser=parser,
        in_code=True,
    )


def turn_format(names: Iterable[str]) -> CallFormat | None:
    """Return the format among these names whose calls end with the turn, or None."""
    for name in names:
        if name in TURN_FORMATS:
            return TURN_FORMATS[name]
        if name.startswith(BY_PARSER):
            return by_parser(name.removeprefix(BY_PARSER))
    return None


def inline_format(tools: Iterable[str]) -> CallFormat:
    """Return the in-line format for these tools: `[name(arguments) -> result]`.

    The form is Toolformer's (Schick et al. 2023, section 2). A call opens only at the name of an
    offered tool, so that brackets in prose stay prose.
    """
    return CallFormat(
        INLINE,
        tuple(f"[{name}(" for name in tools),
        INLINE_CLOSE,
        "call",
        certain=False,
        named=r"\[([^\s(]+)\(",
    )


def resolve(names: Iterable[str], tools: Iterable[str]) -> tuple[CallFormat, ...]:
    """Return the formats of these names; the in-line format is built for `tools`.

    `qwen3_coder` gives two formats: calls in `<tool_call>`, and calls of `tools` without it.
    `deepseek_v4` gives two as well, one for openers that its models misspell.
    Raises `ValueError` for a name that is not in the table and does not begin with `BY_PARSER`.
    """
    tools = tuple(tools)
    formats = []
    for name in names:
        if name.startswith(BY_PARSER):
            formats.append(by_parser(name.removeprefix(BY_PARSER)))
            continue
        if name not in NAMES:
            raise ValueError(f"unknown call format {name!r}; choose from: {', '.join(NAMES)}")
        if name == REACT.name:
            formats.append(REACT)
        elif name != INLINE:
            formats.append(TURN_FORMATS[name])
            if name == QWEN3_CODER.name and tools:
                formats.append(unwrapped(tools))
            elif name == DEEPSEEK_V4.name:
                formats.append(DEEPSEEK_V4_MISSPELT)
        elif tools:
            formats.append(inline_format(tools))
    return tuple(formats)


def check_together(names: Iterable[str]) -> None:
    """Raise `ValueError` if these formats cannot be read in the same turn."""
    turns = [name for name in dict.fromkeys(names) if turn_format([name]) is not None]
    lines = [name for name in dict.fromkeys(names) if name in (REACT.name, INLINE)]
    for several in (turns, lines):
        if len(several) > 1:
            raise ValueError(
                f"call formats {' and '.join(several)} cannot be read together: name one of them"
            )
