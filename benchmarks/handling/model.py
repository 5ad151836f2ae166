"""Llamas with random parameters: what they say means nothing, what they cost is real.

Large enough that recomputing a context costs many steps' time, as it does for the models that
people serve, and small enough for a CPU core. The same seed always makes the same weights.
"""

import json
from dataclasses import dataclass
from pathlib import Path

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

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of all layers in bfloat16."""
        return 2 * self.layers * (self.hidden // self.groups) * 2


SIZES = {
    "85m": Size(12, 768, 2048),
    "25m": Size(8, 512, 1408),
    "2m": Size(2, 256, 512, positions=4096),
    "2m-wide": Size(2, 256, 512, spread=0.2),
    "60m-wide": Size(12, 512, 1408, spread=0.2, positions=32768),
    "8b": Size(32, 4096, 14336, head=128, groups=4, positions=32768, dummy=True),
}


def benchmark_model(name: str, directory: Path = Path(".cache/handling")) -> str:
    """Return the model's directory; it is made at the first call, which takes some seconds."""
    path = directory / f"llama-{name}-{FIRST_ADDED}"
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
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    heads = size.hidden // size.head
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.hidden,
        intermediate_size=size.feed_forward,
        num_hidden_layers=size.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // size.groups,
        max_position_embeddings=size.positions,
        initializer_range=size.spread,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    if size.dummy:
        config.architectures = ["LlamaForCausalLM"]
        config.save_pretrained(path)
    else:
        LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    tokenizer.add_tokens([f'<tool_call>{{"name": "{tool}"}}' for tool in TOOLS] + ["<end>"])
    assert len(tokenizer) == END + 1, f"the tokenizer has {len(tokenizer)} tokens"
    tokenizer.save_pretrained(path)
