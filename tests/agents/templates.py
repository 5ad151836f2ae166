"""The chat templates of the gate: how each writes turns, and which parsers stock vLLM needs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.formats.rendering import ONE_AT_A_TIME, RENDER, Call


@dataclass(frozen=True)
class Turn:
    """What the model is to do in one turn: think, say, call."""

    thought: str
    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Script:
    """The turns behind one prompt, as the model writes them; `tool` must be on offer."""

    tool: str
    turns: list[list[str]]
    """For each turn what it thinks, with its markers, and what follows."""


@dataclass(frozen=True)
class Template:
    """A model family: its template's file, its tokens and the form of its turns."""

    name: str
    file: str
    form: str
    """Its renderer of calls, from `tests.formats.rendering`."""
    tokens: tuple[str, ...]
    """What its vocabulary has as one token each."""
    ends: tuple[str, ...]
    """The tokens that end a turn; the first one ends an answer."""
    thinks: tuple[str, str]
    """What stands before and behind what it thinks."""
    opens: str
    """What the prompt holds before each answer of the model."""
    answered: str
    """A pattern of one answer that the prompt holds."""
    declares: str
    """How the prompt begins the declaration of the tool NAME."""
    parsers: tuple[str, str]
    """vLLM's parsers of calls and of thinking."""
    prefix: str = ""
    """What stands before the text of an answer."""
    config: str = "LlamaConfig"
    sizes: Mapping[str, Any] = field(default_factory=dict)

    def script(self, tool: str, turns: Sequence[Turn]) -> Script:
        """Return turns as this model writes them, one call in each where it can do no more."""
        return Script(tool, [self._written(turn) for each in turns for turn in self._single(each)])

    def _single(self, turn: Turn) -> list[Turn]:
        if self.form not in ONE_AT_A_TIME or len(turn.calls) < 2:
            return [turn]
        return [Turn(turn.thought, turn.text, (each,)) for each in turn.calls]

    def _written(self, turn: Turn) -> list[str]:
        before, behind = self.thinks
        text = self.prefix + turn.text if turn.text else ""
        calls = RENDER[self.form](turn.calls) if turn.calls else ""
        between = "\n\n" if text and calls and not self.prefix else ""
        if calls and self.prefix:
            text = ""  # such a model says nothing beside a call
        return [before + turn.thought + behind, text + between + calls]


_CHATML: dict[str, Any] = {
    "ends": ("<|im_end|>",),
    "opens": "<|im_start|>assistant\n",
    "answered": r"<\|im_start\|>assistant\n.*?<\|im_end\|>",
    "declares": '"name": "NAME"',
    "thinks": ("<think>\n", "\n</think>\n\n"),
}
_QWEN = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"),
    *("<tool_response>", "</tool_response>", "<think>", "</think>"),
)
TEMPLATES = (
    Template("Qwen3", "qwen3", "hermes", _QWEN, parsers=("hermes", "qwen3"), **_CHATML),
    Template(
        "Qwen3.5",
        "qwen3_5_think",
        "qwen3_coder",
        _QWEN,
        parsers=("qwen3_coder", "qwen3"),
        **_CHATML,
    ),
    Template(
        "gpt-oss",
        "gptoss",
        "harmony",
        tokens=(),  # the vocabulary of all models here is gpt-oss's
        ends=("<|return|>", "<|call|>"),
        thinks=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        opens="<|start|>assistant",
        answered=r"<\|call\|>|<\|channel\|>final<\|message\|>",
        declares="type NAME = ",
        parsers=("openai", "openai_gptoss"),
        prefix="<|channel|>final<|message|>",
        config="GptOssConfig",
        sizes={
            "sliding_window": 128,
            "layer_types": ["sliding_attention", "full_attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
    Template(
        "Ministral 3",
        "ministral_3_reasoning",
        "mistral_v11",
        tokens=(
            *("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[TOOL_RESULTS]"),
            *("[/TOOL_RESULTS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[SYSTEM_PROMPT]"),
            *("[/SYSTEM_PROMPT]", "[THINK]", "[/THINK]", "[IMG]"),
        ),
        ends=("</s>",),
        thinks=("[THINK]", "[/THINK]"),
        opens="",
        answered="</s>",
        declares='"name": "NAME"',
        parsers=("mistral", "mistral"),
    ),
)
"""The last one refuses a late system message, and two messages of a user in a row."""


def wanted(prompt: str, template: Mapping[str, Any], scripts: Mapping[str, Any]) -> list[str]:
    """Return the text to write behind a prompt, from the last script that it names.

    `scripts` are `Script`s by the mark that a user's message holds, as JSON. A request that does
    not offer the script's tool, such as one for a title, gets a fixed text.
    """
    found = max(((prompt.rfind(mark), mark) for mark in scripts), default=(-1, ""))
    at, mark = found
    if at < 0:
        return []
    script = scripts[mark]
    written = len(re.findall(template["answered"], prompt[at:], re.DOTALL))
    turns = script["turns"]
    if script["tool"] and template["declares"].replace("NAME", script["tool"]) not in prompt:
        return [template["prefix"] + "A calculator"]
    if written >= len(turns):
        return [template["prefix"] + "Done."]
    thought, rest = turns[written]
    begun = prompt.rpartition(template["opens"])[2] if template["opens"] else ""
    if begun.strip() and begun.rstrip().endswith(template["thinks"][1].strip()):
        return [rest]  # the template has closed an empty thought
    return [(thought + rest).removeprefix(begun)]


def as_json(template: Template) -> dict[str, Any]:
    """Return what `wanted` needs of a template."""
    return asdict(template)
