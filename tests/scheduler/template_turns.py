"""What the models of the real templates write: their thinking, calls and answers as texts."""

from collections.abc import Callable
from typing import NamedTuple

from tests.formats.rendering import RENDER, Call

THOUGHT = "I look it up."
SAID = "Let me look."
ANSWER = "It is 17."
CALLS = (Call("weather", {"city": "Bern"}), Call("weather", {"city": "Rome"}))


class Turn(NamedTuple):
    """What a model writes: its thinking, then a call or an answer, and the tokens that end them.

    `between` stands between a text and the call behind it.
    """

    before: str
    call: str
    answer: str
    ends: tuple[str, str]
    two: str = ""
    """Two calls of one turn; empty where the family writes one call at a time."""
    between: str | None = ""
    """None where the family writes a text beside calls as a message of its own."""


def turn(
    write: str | Callable[..., str],
    end: str,
    before: str = "",
    between: str = "",
    behind: str = "",
) -> Turn:
    """The turns of a family that ends each of them with one token, and writes calls by a format."""
    rendered = RENDER[write] if isinstance(write, str) else write
    one, two = (f"{rendered(calls)}{behind}" for calls in (CALLS[:1], CALLS))
    return Turn(before, one, ANSWER, (end,) * 2, two, between)


def seed(calls: tuple[Call, ...]) -> str:
    """Seed-OSS writes the tags of Qwen3-Coder, with another one around them and no breaks."""
    written = RENDER["qwen3_coder"](calls).replace(">\nBern\n<", ">Bern<")
    return written.replace(">\nRome\n<", ">Rome<").replace("tool_call>", "seed:tool_call>")


def minimax(calls: tuple[Call, ...]) -> str:
    invoked = "".join(
        f'<invoke name="{name}">\n'
        f'<parameter name="city">{arguments["city"]}</parameter>\n</invoke>\n'
        for name, arguments in calls
    )
    return f"\n<minimax:tool_call>\n{invoked}</minimax:tool_call>"


def xlam(calls: tuple[Call, ...]) -> str:
    """A list without a marker, which other families write behind one."""
    return RENDER["mistral"](calls).removeprefix("[TOOL_CALLS]")


def internlm(calls: tuple[Call, ...]) -> str:
    return "".join(
        f"<|action_start|><|plugin|>\n{xlam((call,))[1:-1]}<|action_end|>" for call in calls
    )


def gemma(calls: tuple[Call, ...]) -> str:
    return "".join(
        f'<|tool_call>call:{name}{{city:<|"|>{arguments["city"]}<|"|>}}<tool_call|>'
        for name, arguments in calls
    )


def functools(calls: tuple[Call, ...]) -> str:
    return f"functools{xlam(calls)}"


def granite(calls: tuple[Call, ...]) -> str:
    return f"<|tool_call|>{xlam(calls)}"


def llama4(calls: tuple[Call, ...]) -> str:
    return RENDER["pythonic"](calls).replace("'", '"')


def with_ids(calls: tuple[Call, ...]) -> str:
    """The calls of Mistral's before version 11 hold their ids."""
    written = xlam(calls)
    for number, (_, arguments) in enumerate(calls):
        city = f'"{arguments["city"]}"}}'
        written = written.replace(city, f'{city}, "id": "{call_id(number)}"')
    return f"[TOOL_CALLS]{written}"


def with_marked_ids(calls: tuple[Call, ...]) -> str:
    return "".join(
        RENDER["mistral_v11"]([call]).replace("[ARGS]", f"[CALL_ID]{call_id(number)}[ARGS]")
        for number, call in enumerate(calls)
    )


def call_id(number: int) -> str:
    return f"abcdefgh{number}"


LLAMA = '{"name": "weather", "parameters": {"city": "Bern"}}'
HARMONY = ' to=functions.weather<|channel|>commentary json<|message|>{"city": "Bern"}'
ANALYSIS = f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"
IM_END, EOT_ID, EOT, OF_SENTENCE = "<|im_end|>", "<|eot_id|>", "<|eot|>", "<｜end▁of▁sentence｜>"
OF_TEXT = "<|end_of_text|>"
THINK = f"<think>\n{THOUGHT}\n</think>\n\n"
OPENED = f"{THOUGHT}\n</think>\n\n"
"""Thinking that the prompt has opened."""
GLM = turn("glm", "", f"\n<think>{THOUGHT}</think>\n", "\n")._replace(
    ends=("<|observation|>", "<|user|>")
)

TURNS = {
    "qwen2_5": turn("hermes", IM_END, between="\n"),
    "qwen3": turn("hermes", IM_END, THINK, "\n"),
    "qwen3_5_think": turn("qwen3_coder", IM_END, OPENED, "\n\n"),
    "qwen3_coder": turn("qwen3_coder", IM_END, between="\n\n"),
    "nemotron_3_nano": turn("qwen3_coder", IM_END, f"{THOUGHT}\n</think>\n", "\n", "\n"),
    "hermes": turn("hermes", IM_END),
    "granite_3": turn(granite, OF_TEXT),
    "granite_4": turn("hermes", OF_TEXT, between="\n"),
    "seed_oss": turn(seed, "<seed:eos>", f"<seed:think>{THOUGHT}</seed:think>\n", "\n\n"),
    "minimax_m2": turn(minimax, "[e~[", OPENED),
    "internlm2": turn(internlm, IM_END),
    "phi4_mini": turn(functools, "<|end|>"),
    "xlam_qwen": turn(xlam, IM_END),
    "gemma4": turn(gemma, "<turn|>")._replace(ends=("<|tool_response>", "<turn|>")),
    "llama3_1": Turn("", LLAMA, ANSWER, (EOT_ID,) * 2),
    "llama4_json": Turn("", LLAMA, ANSWER, (EOT,) * 2),
    "llama4_pythonic": turn(llama4, EOT),
    "mistral_nemo": turn(with_ids, "</s>"),
    "mistral_small_3_2": turn(with_marked_ids, "</s>"),
    "ministral_3_reasoning": turn("mistral_v11", "</s>"),
    "kimi_k2": turn("kimi_k2", IM_END),
    "deepseekv3": turn("deepseek_v3", OF_SENTENCE),
    "deepseekv3_tools": turn("deepseek_v3", OF_SENTENCE),
    "deepseek_r1_tools": turn("deepseek_v3", OF_SENTENCE),
    "deepseek_v31": turn("deepseek_v31", OF_SENTENCE),
    "glm4moe": GLM,
    "glm_4_6": GLM,
    "gptoss": Turn(
        ANALYSIS,
        HARMONY,
        f"<|channel|>final<|message|>{ANSWER}",
        ("<|call|>", "<|return|>"),
        between=None,
    ),
}
