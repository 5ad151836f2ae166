"""What a model's directory and the flags of `vllm serve` say of its weights, KV and context."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import caesura
from caesura.planning.costs.engine import Flops
from caesura.simulator.latency.analytic import BYTES, Decoder

BYTES_FLAG = "--kv-cache-memory-bytes"
BLOCKS_FLAG = "--num-gpu-blocks-override"
BLOCK_FLAG = "--block-size"
SHARE_FLAGS = ("--gpu-memory-utilization", "--device-memory-utilization")
FLAGS = (BYTES_FLAG, BLOCKS_FLAG, BLOCK_FLAG, *SHARE_FLAGS)

UTILIZATION = 0.92
"""vLLM's default share of a device's memory."""

MULTIPLES = {
    **{letter: 1000.0**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1024.0**power for power, letter in enumerate("KMGT", 1)},
}
"""How vLLM reads sizes: 4g is 4 * 1000^3, and 4G is 4 * 1024^3."""


@dataclass(frozen=True, slots=True)
class KvSize:
    """The flags of one engine; 0: not given.

    `memory_bytes` are those of the KV cache on each device, and `blocks` its blocks of
    `block_tokens`. `utilization` is the share of a device's memory for weights, KV cache and all
    else.
    """

    memory_bytes: int = 0
    blocks: int = 0
    block_tokens: int = 0
    utilization: float = 0.0

    def on_device(self, kv_bytes: int, block_tokens: int) -> int:
        """Return the bytes of the KV cache on each device; 0 if the flags leave it open.

        `kv_bytes` are those of a token, and `block_tokens` the tokens of a block by default. As in
        vLLM, a number of blocks goes before a number of bytes.
        """
        if self.blocks:
            return self.blocks * (self.block_tokens or block_tokens) * kv_bytes
        return self.memory_bytes


def kv_size(arguments: Sequence[str]) -> KvSize:
    """Return what arguments of `vllm serve` say; vLLM itself refuses those that are wrong."""
    given = dict(_options(arguments))
    shares = [given[flag] for flag in SHARE_FLAGS if flag in given]
    return KvSize(
        memory_bytes=int(_number(given.get(BYTES_FLAG, ""))),
        blocks=int(_number(given.get(BLOCKS_FLAG, ""))),
        block_tokens=int(_number(given.get(BLOCK_FLAG, ""))),
        utilization=_number(shares[-1]) if shares else 0.0,
    )


def kv_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return those of the arguments that size the KV cache, as `--flag=value`."""
    return tuple(f"{flag}={value}" for flag, value in _options(arguments))


def _options(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return the flags that size the KV cache, with their values in the order given."""
    found = []
    for place, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        flag = flag.replace("_", "-")
        if flag in FLAGS:
            following = next(iter(arguments[place + 1 : place + 2]), "")
            found.append((flag, value if equals else following))
    return found


def _number(text: str) -> float:
    """Return a number as vLLM reads it; 0 for none."""
    text = text.strip()
    times = MULTIPLES.get(text[-1:], 0.0)
    try:
        return max(0.0, float(text[:-1] if times else text) * (times or 1.0))
    except ValueError:
        return 0.0


BUNDLED = Path(caesura.__file__).parent / "models" / "caesura-tiny"
LENGTH_FLAG = "--max-model-len"
DEFAULT_LONGEST = 2048


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder, the bytes of its weights on all devices together, and l_max in tokens."""

    decoder: Decoder
    weight_bytes: float
    longest: int

    @property
    def flops(self) -> Flops:
        """Return the FLOPs of a token and of a query-key pair: 2 per weight, and 2 L h."""
        decoder = self.decoder
        return Flops(2.0 * decoder.matrices, 2.0 * decoder.layers * decoder.hidden)


def model_directory(path: str) -> Path | None:
    """Return the directory of a model's files; None for a model that is not on this machine.

    An empty path stands for the bundled model.
    """
    found = Path(path).expanduser().resolve() if path else BUNDLED
    return found if found.is_dir() else None


def read_shape(path: str) -> ModelShape | None:
    """Return the shape of a model; None without a directory and a `config.json` of a decoder.

    The weights are those of its safetensors files, or two bytes per parameter without them.
    """
    folder = model_directory(path)
    if folder is None:
        return None
    try:
        config = json.loads((folder / "config.json").read_text())
        decoder = _decoder(config)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    files = [file.stat().st_size for file in folder.glob("*.safetensors")]
    weights = float(sum(files)) or float(BYTES * decoder.parameters)
    longest = config.get("max_position_embeddings")
    return ModelShape(decoder, weights, int(longest) if longest else DEFAULT_LONGEST)


def longest_of(arguments: Sequence[str], otherwise: int) -> int:
    """Return l_max as the flags of `vllm serve` set it, or the model's own."""
    for place, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag.replace("_", "-") == LENGTH_FLAG:
            given = value if equals else next(iter(arguments[place + 1 : place + 2]), "")
            if given.isdecimal():
                return int(given)
    return otherwise


def _decoder(config: Mapping[str, Any]) -> Decoder:
    """Return the decoder that a configuration describes; raises `KeyError` for another one.

    A mixture of experts counts all experts' weights.
    """
    inner = config.get("text_config", config)
    hidden, heads = int(inner["hidden_size"]), int(inner["num_attention_heads"])
    experts = int(inner.get("num_local_experts") or inner.get("num_experts") or 1)
    return Decoder(
        layers=int(inner["num_hidden_layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(inner.get("num_key_value_heads") or heads),
        head_size=int(inner.get("head_dim") or hidden // heads),
        inner=int(inner["intermediate_size"]) * experts,
        vocabulary=int(inner["vocab_size"]),
    )
