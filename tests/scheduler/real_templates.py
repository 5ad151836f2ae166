"""Renderers with the chat templates of real models, over the bundled model's vocabulary."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.vllm.client.rendering.render import Renderer

TEMPLATES = Path(__file__).parent / "templates"
ENDS = {
    "bundled": ("<|im_end|>",),
    "qwen2_5": ("<|im_end|>",),
    "qwen3": ("<|im_end|>",),
    "qwen3_5_think": ("<|im_end|>",),
    "nemotron_3_nano": ("<|im_end|>",),
    "deepseekv3": ("<｜end▁of▁sentence｜>",),
    "deepseek_r1_distill": ("<｜end▁of▁sentence｜>",),
    "llama3_1": ("<|eot_id|>", "<|eom_id|>"),
    "gptoss": ("<|call|>", "<|return|>"),
    "glm4moe": ("<|user|>", "<|observation|>", "<|endoftext|>"),
    "qwen3_coder": ("<|im_end|>",),
    "hermes": ("<|im_end|>",),
    "granite_3": ("<|end_of_text|>",),
    "granite_4": ("<|end_of_text|>",),
    "seed_oss": ("<seed:eos>",),
    "minimax_m2": ("[e~[",),
    "internlm2": ("<|im_end|>",),
    "phi4_mini": ("<|end|>",),
    "xlam_qwen": ("<|im_end|>",),
    "gemma4": ("<turn|>", "<|tool_response>"),
    "llama4_json": ("<|eot|>", "<|eom|>"),
    "llama4_pythonic": ("<|eot|>", "<|eom|>"),
    "mistral_nemo": ("</s>",),
    "mistral_small_3_2": ("</s>",),
    "ministral_3_reasoning": ("</s>",),
    "kimi_k2": ("<|im_end|>",),
    "deepseekv3_tools": ("<｜end▁of▁sentence｜>",),
    "deepseek_r1_tools": ("<｜end▁of▁sentence｜>",),
    "deepseek_v31": ("<｜end▁of▁sentence｜>",),
    "glm_4_6": ("<|user|>", "<|observation|>", "<|endoftext|>"),
}
"""The texts of the tokens that end a turn, by template; the first ends an answer."""
CONTEXT_TOKENS = 4096


def renderer_of(template: str) -> tuple[Any, Renderer]:
    """Return a tokenizer with a model's template and its ends of turns, and its renderer."""
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    tokenizer.add_tokens(list(ENDS[template]), special_tokens=True)
    if template != "bundled":
        tokenizer.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
        tokenizer.eos_token = ENDS[template][0]
    ends = frozenset(map(tokenizer.convert_tokens_to_ids, ENDS[template]))
    return tokenizer, Renderer(tokenizer, ends, CONTEXT_TOKENS)
