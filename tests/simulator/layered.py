"""The public configurations of models whose layers differ, of which the simulator has machines."""

from collections import Counter
from typing import Any

from transformers import Gemma3TextConfig, GptOssConfig, NemotronHConfig, Qwen3NextConfig

from caesura.simulator.latency.machines import MACHINES

QWEN, GPT, NEMOTRON, GEMMA = (
    "qwen3-next-80b-h100-tp2",
    "gpt-oss-120b-h100",
    "nemotron-3-nano-30b-h100",
    "gemma-3-27b-h100",
)
NAMES = (QWEN, GPT, NEMOTRON, GEMMA)
# The `config.json` of each model; what is not given is the default of transformers.
CONFIGS: dict[str, tuple[Any, str, int]] = {
    QWEN: (Qwen3NextConfig(), "Qwen3NextForCausalLM", 2),
    GPT: (GptOssConfig(), "GptOssForCausalLM", 1),
    NEMOTRON: (
        NemotronHConfig(
            hidden_size=2688,
            layers_block_type=[
                {"M": "mamba", "*": "attention", "E": "moe"}[letter]
                for letter in "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
            ],
            num_attention_heads=32,
            num_key_value_heads=2,
            head_dim=128,
            mamba_num_heads=64,
            mamba_head_dim=64,
            ssm_state_size=128,
            n_groups=8,
            conv_kernel=4,
            n_routed_experts=128,
            num_experts_per_tok=6,
            mamba_ssm_cache_dtype="float32",
            max_position_embeddings=262_144,
        ),
        "NemotronHForCausalLM",
        1,
    ),
    GEMMA: (
        Gemma3TextConfig(
            hidden_size=5376,
            num_hidden_layers=62,
            num_attention_heads=32,
            num_key_value_heads=16,
            head_dim=128,
            intermediate_size=21_504,
            sliding_window=1024,
        ),
        "Gemma3ForCausalLM",
        1,
    ),
}


def kinds_of(name: str) -> list[str]:
    """Return the kind of each layer that keeps something."""
    hf = CONFIGS[name][0]
    if name == NEMOTRON:
        return [kind for kind in hf.layers_block_type if kind != "moe"]
    return list(hf.layer_types)


def block_bytes(name: str) -> int:
    """Return the bytes of a block, by the model's configuration.

    In vLLM a group has at most as many layers as there are of the rarest kind, and all groups'
    blocks have the same bytes: a page of attention for each of these layers. A state takes a page.
    """
    hf, _, devices = CONFIGS[name]
    heads = hf.num_key_value_heads // devices
    page = MACHINES[name].block_tokens * heads * hf.head_dim * 2 * 2  # keys, values, bfloat16
    return page * min(Counter(kinds_of(name)).values())


def kept_bytes(name: str, tokens: int) -> int:
    """Return the bytes of all blocks that the model needs to go on behind so many tokens."""
    hf, size = CONFIGS[name][0], MACHINES[name].block_tokens
    layers = Counter(kinds_of(name))
    blocks = 0
    for kind, count in layers.items():
        places = -(-tokens // size)
        if kind in ("linear_attention", "mamba"):
            places = 1
        elif kind == "sliding_attention":
            places -= max(0, tokens - hf.sliding_window + 1) // size
        blocks += places * -(-count // min(layers.values()))
    return blocks * block_bytes(name)
