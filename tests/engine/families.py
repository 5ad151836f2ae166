"""Tiny random models of the families whose KV caches differ, one for each kind of layer.

Each has a layer of every kind that its family mixes, at the sizes that vLLM's CPU kernels take. The
weights are as widely spread as those of `core.random_model`, so that a lost token changes a text.
"""

import importlib.util
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from caesura.intercept.calls.detection import detect
from caesura.runtime.launch import BUNDLED_MODEL
from tests.scheduler.real_templates import TEMPLATES

VOCABULARY = 1024
WINDOW = 64
"""Tokens that a layer with a window sees: fewer than any test's context, more than one block."""

USUAL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
DELTA_NET: dict[str, Any] = {
    "head_dim": 128,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 4,  # all: in bfloat16 a near tie between experts would change a token
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}
MAMBA_2: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 32,
    "mamba_n_groups": 1,
    "mamba_d_state": 32,
    "mamba_chunk_size": 64,
}
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,  # with the width of values: what kernels of GPUs take
    "v_head_dim": 128,
    "moe_intermediate_size": 64,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "topk_method": "noaux_tc",
}
INTERLEAVED = ["sliding_attention", "full_attention"]


@dataclass(frozen=True)
class Family:
    """A family: the class of its configuration in transformers, and what differs from `USUAL`."""

    config: str
    groups: tuple[str, ...]
    """The kinds of layers in the order of vLLM's KV cache groups."""
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    caches_prefixes: bool = True
    """Whether vLLM's CPU build runs it with prefix caching."""
    refused: str = ""
    """The words with which vLLM's CPU build refuses it."""
    plain_rotary: bool = False
    """Whether PyTorch rotates its queries: vLLM's CPU kernel reads their shape wrongly."""
    needs: str = ""
    """A package that vLLM imports for it and that the CPU set-up leaves out."""
    templates: tuple[str, ...] = ()
    """Its chat templates in `tests/scheduler/templates`, whose calls are detected."""

    @property
    def recurrent(self) -> bool:
        """Whether a layer keeps one state of all tokens."""
        return "state" in self.groups

    @property
    def alone(self) -> bool:
        """Whether one group has all tokens, so that blocks are released one by one."""
        return self.groups in (("full",), ("latent",))

    @property
    def runs_here(self) -> bool:
        """Whether this machine's vLLM can run it."""
        missing = self.needs and importlib.util.find_spec(self.needs) is None
        return not (self.refused or missing)


FAMILIES: dict[str, Family] = {
    "Mistral with a window": Family(
        "MistralConfig",
        ("window",),
        {"sliding_window": WINDOW},
        templates=("mistral_nemo", "mistral_small_3_2"),
    ),
    "gpt-oss": Family(
        "GptOssConfig",
        ("window", "full"),
        {
            "sliding_window": WINDOW,
            "layer_types": INTERLEAVED,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
        templates=("gptoss",),
    ),
    "Gemma 3": Family(
        "Gemma3TextConfig",
        ("window", "full"),
        {"sliding_window": WINDOW, "layer_types": INTERLEAVED},
    ),
    "Llama 4": Family(
        "Llama4TextConfig",
        ("chunks", "full"),
        {
            "attention_chunk_size": WINDOW,
            "layer_types": ["chunked_attention", "full_attention"],
            "no_rope_layers": [1, 0],
            "num_local_experts": 2,
            "intermediate_size_mlp": 256,
        },
        templates=("llama4_pythonic", "llama4_json"),
    ),
    "Qwen3-Next": Family(
        "Qwen3NextConfig", ("state", "full"), {**DELTA_NET, **EXPERTS}, dtype="bfloat16"
    ),
    "Qwen 3.5": Family(
        "Qwen3_5TextConfig",
        ("state", "full"),
        DELTA_NET,
        dtype="bfloat16",
        needs="torchvision",
        templates=("qwen3_5_think",),
    ),
    "Granite 4": Family(
        "GraniteMoeHybridConfig",
        ("state", "full"),
        {
            **MAMBA_2,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 128,
        },
        caches_prefixes=False,
        templates=("granite_4",),
    ),
    "Nemotron-H": Family(
        "NemotronHConfig",
        ("state", "full"),
        {
            "num_hidden_layers": 3,
            "hybrid_override_pattern": "M-*",
            "mamba_num_heads": 8,
            "mamba_head_dim": 32,
            "n_groups": 1,
            "ssm_state_size": 32,
            "chunk_size": 64,
        },
        caches_prefixes=False,
        templates=("nemotron_3_nano",),
    ),
    "Falcon-H1": Family(
        "FalconH1Config",
        ("full", "state"),
        {**MAMBA_2, "mamba_d_ssm": 256},
        caches_prefixes=False,
    ),
    "LFM2": Family(
        "Lfm2Config",
        ("state", "full"),
        {
            "layer_types": ["conv", "full_attention"],
            "conv_dim": 128,
            "block_dim": 128,
            "tie_word_embeddings": True,
        },
        plain_rotary=True,
    ),
    "DeepSeek V3": Family(
        "DeepseekV3Config",
        ("latent",),
        {**LATENT, "q_lora_rank": None},
        plain_rotary=True,
        templates=("deepseekv3_tools", "deepseek_v31"),
    ),
    "DeepSeek V3.2": Family(
        "DeepseekV32Config",
        ("latent",),
        {
            **LATENT,
            "q_lora_rank": 64,
            "index_n_heads": 4,
            "index_head_dim": 128,
            "index_topk": 64,
        },
        refused="Sparse Attention is not supported on CPU",
    ),
}

KINDS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "latent",
    "SlidingWindowSpec": "window",
    "ChunkedLocalAttentionSpec": "chunks",
    "MambaSpec": "state",
}
"""The names of a group's kind, by vLLM's class."""


@cache
def model_of(name: str) -> str:
    """Return the directory of a family's tiny model, with the bundled model's tokenizer."""
    import torch
    import transformers

    family = FAMILIES[name]
    usual = dict(USUAL)
    if "kv_lora_rank" in family.options:
        del usual["head_dim"]  # transformers takes it for that of the rotary part
    config = getattr(transformers, family.config)(**{**usual, **family.options})
    directory = Path(tempfile.mkdtemp(prefix="caesura-family-"))
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(directory)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(BUNDLED_MODEL, file), directory / file)
    return str(directory)


COLUMNS = (
    "family",
    "groups",
    "calls",
    "kept over a pause",
    "given up and recomputed",
    "swapped",
    "kept for follow-ups",
    "exact on CPUs",
)


def table() -> list[str]:
    """Return the lines of the table of docs/reference/model-families.md."""
    rows = [COLUMNS, ["---"] * len(COLUMNS)]
    for name, family in FAMILIES.items():
        rows.append([name, *_cells(family)])
    return [f"| {' | '.join(row)} |" for row in rows]


def _cells(family: Family) -> list[str]:
    texts = [(TEMPLATES / f"{name}.jinja").read_text() for name in family.templates]
    formats = dict.fromkeys(f"`{name}`" for text in texts for name in detect(text))
    kept = "yes; not with drafts" if family.recurrent else "yes"
    by_block = "by block, with prefix caching"
    told = [
        kept,
        by_block if family.alone else "all at once",
        by_block
        if family.alone
        else ("all at once" if not family.recurrent else "all at once; not with drafts"),
        "yes, with prefix caching" if family.alone else kept,
        "sync and async",
    ]
    if family.refused:
        told = ["not tested"] * 4 + [f'not run: "{family.refused}"']
    elif family.needs:
        told[-1] = f"not run: vLLM imports {family.needs}"
    elif family.plain_rotary:
        told[-1] = "async, rotated by PyTorch"
    elif not family.caches_prefixes:
        told[-1] += ", without prefix caching"
    elif family.dtype == "bfloat16":
        told[-1] += ", in bfloat16"
    return [" + ".join(family.groups), ", ".join(formats) or "not tested", *told]


if __name__ == "__main__":
    print("\n".join(table()))
