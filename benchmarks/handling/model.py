"""Models with random parameters: what they say means nothing, what they cost is real.

Large enough that recomputing a context costs many steps' time, as it does for the models that
people serve, and small enough for a CPU core. The same seed always makes the same weights.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import BYTES
from caesura.runtime.launch import BUNDLED_MODEL

WORDS = range(16, 1024)
"""Tokens that contexts are made of; lower ids are special ones."""
TOOLS = ("math", "qa", "ve", "chatbot", "image", "tts", "agent")
FIRST_ADDED = json.loads(Path(BUNDLED_MODEL, "config.json").read_text())["vocab_size"]
CALLS = {tool: FIRST_ADDED + index for index, tool in enumerate(TOOLS)}
"""For each tool a token that is a whole call of it.

Random weights cannot be made to write a call, but one token can be forced. So the scheduler reads
the tool's name off what is decoded, as it does with any model.
"""
END = FIRST_ADDED + len(TOOLS)
"""The token that ends a session's last segment."""
VOCABULARY = 32 * (END // 32 + 1)
SEED = 7


DELTA_HEADS, DELTA_HEAD = 4, 128
"""Heads of a recurrent layer, and their width: the least that vLLM's CPU kernels take."""


@dataclass(frozen=True)
class Size:
    """The shape of a model."""

    layers: int
    hidden: int
    feed_forward: int
    head: int = 64
    """The width of a head."""
    groups: int = 1
    """Heads that share one head of keys and values."""
    positions: int = 2048
    """The longest context in tokens."""
    spread: float = 0.02
    """The standard deviation of the weights; wide ones make near ties between tokens rare."""
    dummy: bool = False
    """Whether no weights are written: vLLM fills them in, and the words are those of no model."""

    stride: int = 1
    """Of so many layers one has attention; the others keep a recurrent state, as in Qwen3-Next."""

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Keys and values of all layers with attention, in vLLM's type of that name."""
        return 2 * (self.layers // self.stride) * (self.hidden // self.groups) * BYTES[dtype]

    @property
    def state_bytes(self) -> int:
        """The recurrent states of a request, in float32, without those of short convolutions."""
        return (self.layers - self.layers // self.stride) * DELTA_HEADS * DELTA_HEAD**2 * 4


SIZES = {
    "85m": Size(12, 768, 2048),
    "25m": Size(8, 512, 1408),
    "hybrid": Size(4, 256, 704, stride=4),
    "2m": Size(2, 256, 512, positions=4096),
    "2m-wide": Size(2, 256, 512, spread=0.2),
    "60m-wide": Size(12, 512, 1408, spread=0.2, positions=32768),
    "8b": Size(32, 4096, 14336, head=128, groups=4, positions=32768, dummy=True),
}


def benchmark_model(name: str, directory: Path = Path(".cache/handling")) -> str:
    """Return the model's directory; it is made at the first call, which takes some seconds."""
    path = directory / f"model-{name}-{FIRST_ADDED}"
    marker = path / "complete"
    if not marker.exists():
        _make(SIZES[name], path)
        marker.touch()
    return str(path.resolve())


def load_format(name: str) -> str:
    """Return vLLM's `load_format` for the model."""
    return "dummy" if SIZES[name].dummy else "auto"


def _make(size: Size, path: Path) -> None:
    # Slow to import, and needed once.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(SEED)
    config = _config(size)
    if size.dummy:
        config.architectures = ["LlamaForCausalLM"]
        config.save_pretrained(path)
    else:
        AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    tokenizer.add_tokens([f'<tool_call>{{"name": "{tool}"}}' for tool in TOOLS] + ["<end>"])
    assert len(tokenizer) == END + 1, f"the tokenizer has {len(tokenizer)} tokens"
    tokenizer.save_pretrained(path)


def _config(size: Size) -> Any:
    from transformers import LlamaConfig, Qwen3NextConfig

    heads = size.hidden // size.head
    usual = {
        "vocab_size": VOCABULARY,
        "hidden_size": size.hidden,
        "intermediate_size": size.feed_forward,
        "num_hidden_layers": size.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // size.groups,
        "max_position_embeddings": size.positions,
        "initializer_range": size.spread,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if size.stride == 1:
        return LlamaConfig(**usual)
    kinds = ["linear_attention"] * (size.stride - 1) + ["full_attention"]
    return Qwen3NextConfig(
        **usual,
        head_dim=size.head,
        layer_types=kinds * (size.layers // size.stride),
        linear_num_key_heads=DELTA_HEADS // 2,
        linear_num_value_heads=DELTA_HEADS,
        linear_key_head_dim=DELTA_HEAD,
        linear_value_head_dim=DELTA_HEAD,
        mlp_only_layers=list(range(1, size.layers)),  # vLLM wants one layer of experts at least
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=size.feed_forward // 2,
        shared_expert_intermediate_size=64,
    )
