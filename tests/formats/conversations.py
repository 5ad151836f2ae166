"""How each family writes a conversation: its control tokens, and a template in its manner."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from caesura.scheduler.vllm.client.rendering.render import Renderer
from tests.formats.world import END, MARKERS, byte_characters, byte_level, harmony_tokenizer


@dataclass(frozen=True)
class Family:
    """The texts around a message; `{}` stands for what is in it, `{role}` for who wrote it."""

    turn: str
    answer: str
    result: str
    call: str
    ask: str
    special: tuple[str, ...]
    """Control tokens besides the markers of calls."""

    @property
    def template(self) -> str:
        """A chat template in the family's manner."""
        text, calls = "{{ m.content }}", f"{{% for c in m.tool_calls %}}{self.call}{{% endfor %}}"
        role = "{{ m.role }}"
        answer = self.answer.replace("{}", f"{text}{calls}")
        result = self.result.replace("{}", text)
        turn = self.turn.replace("{role}", role).replace("{}", text)
        tools = self.turn.replace("{role}", "system").replace("{}", "{{ tools | tojson }}")
        return (
            "{% if tools %}" + tools
            + "{% endif %}{% for m in messages %}{% if m.role == 'tool' %}" + result
            + "{% elif m.role == 'assistant' %}" + answer + "{% else %}" + turn
            + "{% endif %}{% endfor %}{% if add_generation_prompt %}" + self.ask + "{% endif %}"
        )  # fmt: skip


ARGUMENTS = "{{ c.function.arguments | tojson }}"
NAMED = '{"name": "{{ c.function.name }}", "arguments": ' + ARGUMENTS + "}"
CHATML = ("<|im_start|>", "<|im_end|>", "<tool_response>", "</tool_response>")


def chatml(call: str) -> Family:
    return Family(
        "<|im_start|>{role}\n{}<|im_end|>\n",
        "<|im_start|>assistant\n{}<|im_end|>\n",
        "<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n",
        call,
        "<|im_start|>assistant\n",
        CHATML,
    )


def pairs(before: str, behind: str) -> str:
    """The arguments of a call one by one, around the key and the value."""
    key, value = before.replace("{}", "{{ k }}"), behind.replace("{}", "{{ v }}")
    return f"{{% for k, v in c.function.arguments.items() %}}{key}{value}{{% endfor %}}"


def llama(start: str, end: str, over: str, call: str) -> Family:
    turn = f"{start}{{role}}{end}\n\n{{}}{over}"
    answer, result = (turn.replace("{role}", role) for role in ("assistant", "ipython"))
    return Family(turn, answer, result, call, f"{start}assistant{end}\n\n", (start, end, over))


def mistral(call: str) -> Family:
    special = ("[INST]", "[/INST]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]")
    result = "[TOOL_RESULTS]{}[/TOOL_RESULTS]"
    return Family("[INST] {}[/INST]", "{}" + END, result, call, "", special)


def deepseek(call: str) -> Family:
    begin, end = "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"
    special = (
        *("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜tool▁outputs▁begin｜>"),
        *("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    )
    calls = f"<｜tool▁calls▁begin｜>{call}<｜tool▁calls▁end｜>"
    answer = "<｜Assistant｜>{}<｜end▁of▁sentence｜>"
    return Family("<｜User｜>{}", answer, begin + "{}" + end, calls, "<｜Assistant｜>", special)


def dsml(section: str, space: str = "") -> Family:
    tag = f"｜DSML｜{space}"
    call = pairs(f'<{tag}parameter name="{{}}" string="true">', f"{{}}</{tag}parameter>\n")
    call = f'<{tag}invoke name="{NAME}">\n{call}</{tag}invoke>\n'
    return Family(
        "<｜User｜>{}",
        "<｜Assistant｜>{}<｜end▁of▁sentence｜>",
        "<｜User｜><tool_result>{}</tool_result>",
        f"<{tag}{section}>\n{call}</{tag}{section}>",
        "<｜Assistant｜>",
        ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
    )


NAME = "{{ c.function.name }}"
FAMILIES = {
    "hermes": chatml(f"<tool_call>\n{NAMED}\n</tool_call>"),
    "qwen3_coder": chatml(
        f"<tool_call>\n<function={NAME}>\n"
        + pairs("<parameter={}>\n", "{}\n</parameter>\n")
        + "</function>\n</tool_call>"
    ),
    "glm": Family(
        "<|{role}|>\n{}",
        "<|assistant|>\n{}",
        "<|observation|>\n<tool_response>\n{}\n</tool_response>",
        f"<tool_call>{NAME}\n"
        + pairs("<arg_key>{}</arg_key>\n", "<arg_value>{}</arg_value>\n")
        + "</tool_call>",
        "<|assistant|>\n",
        (
            *("<|user|>", "<|system|>", "<|assistant|>", "<|observation|>"),
            *("<tool_response>", "</tool_response>"),
        ),
    ),
    "seed_oss": Family(
        "<seed:bos>{role}\n{}<seed:eos>",
        "<seed:bos>assistant\n{}<seed:eos>",
        "<seed:bos>tool\n{}<seed:eos>",
        f"<seed:tool_call>\n<function={NAME}>\n"
        + pairs("<parameter={}>", "{}</parameter>\n")
        + "</function>\n</seed:tool_call>",
        "<seed:bos>assistant\n",
        ("<seed:bos>", "<seed:eos>"),
    ),
    "minimax_m2": Family(
        "]~b]{role}\n{}[e~[\n",
        "]~b]ai\n{}[e~[\n",
        "]~b]tool\n<response>{}</response>[e~[\n",
        f'<minimax:tool_call>\n<invoke name="{NAME}">\n'
        + pairs('<parameter name="{}">', "{}</parameter>\n")
        + "</invoke>\n</minimax:tool_call>",
        "]~b]ai\n",
        ("]~b]", "[e~["),
    ),
    "deepseek_v32": dsml("function_calls"),
    "deepseek_v4": dsml("tool_calls"),
    "deepseek_v41": dsml("calls", " "),
    "longcat": chatml(f"<longcat_tool_call>\n{NAMED}\n</longcat_tool_call>"),
    "hunyuan_a13b": chatml(f"<tool_calls>[{NAMED}]</tool_calls>"),
    "internlm": chatml(f"<|action_start|><|plugin|>\n{NAMED}\n<|action_end|>"),
    "llama3_json": llama("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", NAMED),
    "pythonic": llama("<|header_start|>", "<|header_end|>", "<|eot|>", f"[{NAME}()]"),
    "mistral": mistral(f"[TOOL_CALLS][{NAMED}]"),
    "mistral_v11": mistral(f"[TOOL_CALLS]{NAME}[ARGS]{ARGUMENTS}"),
    "deepseek_v3": deepseek(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{NAME}\n```json\n{ARGUMENTS}\n```"
        "<｜tool▁call▁end｜>"
    ),
    "deepseek_v31": deepseek(
        f"<｜tool▁call▁begin｜>{NAME}<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜>"
    ),
    "kimi_k2": Family(
        "<|im_user|>{role}<|im_middle|>{}<|im_end|>",
        "<|im_assistant|>assistant<|im_middle|>{}<|im_end|>",
        "<|im_system|>tool<|im_middle|>## Return of {{ m.tool_call_id }}\n{}<|im_end|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>{{ c.id }}"
        f"<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>",
        "<|im_assistant|>assistant<|im_middle|>",
        ("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"),
    ),
    "harmony": Family(
        "<|start|>{role}<|message|>{}<|end|>",
        "<|start|>assistant<|channel|>final<|message|>{}<|end|>",
        "<|start|>functions.f to=assistant<|channel|>commentary<|message|>{}<|end|>",
        "<|start|>assistant<|channel|>commentary to=functions."
        f"{NAME} <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
        "<|start|>assistant",
        ("<|start|>", "<|message|>", "<|end|>", "<|channel|>", "<|constrain|>", "<|call|>"),
    ),
    "react": chatml("Action: f"),
    "inline": chatml("[f() -> 1]"),
}
"""By the names of `rendering.RENDER`."""


@cache
def tokenizer_of(name: str) -> Any:
    """A tokenizer with every byte for a token, the family's control tokens and its template."""
    if name == "harmony":
        made = harmony_tokenizer()
    else:
        vocabulary = {character: index for index, character in enumerate(byte_characters())}
        made = byte_level(vocabulary, [*MARKERS[name], *FAMILIES[name].special, END])
    made.chat_template = FAMILIES[name].template
    return made


def renderer_of(name: str, *, literal: bool = True) -> Renderer:
    tokenizer = tokenizer_of(name)
    return Renderer(tokenizer, frozenset({tokenizer.eos_token_id}), literal=literal)
