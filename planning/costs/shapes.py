"""The shape of a model from its directory: layers and widths, weights, and its longest context."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.planning.costs.engine import Flops
from caesura.simulator.latency.models import BYTES, Decoder

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


def read_shape(path: Path) -> ModelShape | None:
    """Return the shape of the model in a directory; None without a `config.json` of a decoder.

    The weights are those of its safetensors files, or two bytes per parameter without them.
    """
    try:
        config = json.loads((path / "config.json").read_text())
        decoder = _decoder(config)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    files = [file.stat().st_size for file in path.glob("*.safetensors")]
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
