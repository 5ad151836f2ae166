"""The shape of a model from its directory: layers and widths, weights, and its longest context."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import caesura
from caesura.planning.costs.engine import Flops
from caesura.simulator.latency.models import BYTES, Decoder

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
