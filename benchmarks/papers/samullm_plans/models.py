"""The models of SamuLLM's experiments: step times, memory and loading on A100-80G devices.

Where the authors timed a model's iterations, or those of one with the same shape, their fit is
used (`simulator/latency/samullm.json`); for others a roofline, which is marked in the tables.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from caesura.planning.application.application import Model
from caesura.planning.costs.engine import EngineCosts, Flops
from caesura.simulator.latency.analytic import (
    A100_80G,
    LLAMA_2_70B,
    USED,
    Decoder,
    kv_tokens,
    roofline,
)
from caesura.simulator.latency.samullm import fits
from caesura.simulator.machine import LatencyModel, StepShape

LOADING = (11.0, 47.0)
"""Seconds to load the smallest and the largest model (section 5.1); by weights between them."""

MISTRAL_7B = Decoder(32, 4096, 32, 8, 128, 14_336, 32_000)
CODE_LLAMA_34B = Decoder(48, 8192, 64, 8, 128, 22_016, 32_000)
STABLELM_7B = Decoder(16, 6144, 48, 48, 128, 16_384, 50_432)
"""StableLM's MLP has two matrices of 4 x 6144: here three with as many weights."""

ROOM = USED * A100_80G.memory


@dataclass(frozen=True, slots=True)
class Shape:
    """A model: billions of weights, l_max, whose timed iterations and lengths it has.

    `fit` is empty for a roofline of `decoder`.
    """

    weights: float
    longest: int
    fit: str = ""
    decoder: Decoder | None = None
    lengths: str = ""


SHAPES: Mapping[str, Shape] = {
    "vicuna-13b-v1.5": Shape(13.0, 4096, "vicuna-13b-v1.5"),
    "oasst-sft-4-pythia-12b-epoch-3.5": Shape(12.0, 2048, "oasst-sft-4-pythia-12b-epoch-3.5"),
    "alpaca-13b": Shape(13.0, 2048, "alpaca-13b"),
    "baize-v2-13b": Shape(13.0, 2048, "baize-v2-13b"),
    "koala-13B-HF": Shape(13.0, 2048, "koala-13B-HF"),
    "dolly-v2-12b": Shape(12.0, 2048, "dolly-v2-12b"),
    "mpt-7b-chat": Shape(6.7, 2048, "mpt-7b-chat"),
    "chatglm3-6b": Shape(6.2, 8192, "chatglm3-6b"),
    "stablelm-tuned-alpha-7b": Shape(7.9, 4096, "", STABLELM_7B, "gpt-neox-20b"),
    "Llama-2-70b-chat-hf": Shape(69.0, 4096, "", LLAMA_2_70B),
    "Mixtral-8x7B-Instruct-v0.1": Shape(46.7, 32_768, "Mixtral-8x7B-v0.1"),
    "WizardLM-13B-V1.2": Shape(13.0, 4096, "Llama-2-13b-hf"),
    "CodeLlama-34b-Instruct-hf": Shape(33.7, 16_384, "", CODE_LLAMA_34B),
    "Mistral-7B-Instruct-v0.2": Shape(7.2, 32_768, "", MISTRAL_7B),
}

ENSEMBLE = tuple(SHAPES)[:9]
"""The models of LLM-Blender that the paper's ensemble uses (section 5.1)."""

ROUTED: Mapping[str, int] = {
    "Llama-2-70b-chat-hf": 408,
    "Mixtral-8x7B-Instruct-v0.1": 1267,
    "WizardLM-13B-V1.2": 2068,
    "CodeLlama-34b-Instruct-hf": 456,
    "Mistral-7B-Instruct-v0.2": 2657,
}
"""Table 1: the requests of each model of the routing."""


@dataclass(frozen=True, slots=True)
class Slower:
    """A latency model whose steps take `factor` times as long."""

    latency: LatencyModel
    factor: float

    @property
    def name(self) -> str:
        """Return the name of the latency model."""
        return self.latency.name

    def seconds(self, step: StepShape) -> float:
        """Return the seconds that the step takes, without copies."""
        return self.factor * self.latency.seconds(step)


def model_of(name: str) -> Model:
    """Return the model with the tensor-parallel sizes that it has times for and fits on."""
    degrees = tuple(degree for degree in (1, 2, 4) if _costs(name, degree) is not None)
    return Model(name, name, tensor_parallel=degrees)


def engines(seed: int | None = None) -> Callable[[str, int], EngineCosts | None]:
    """Return the costs of engines by model and tensor-parallel size.

    With a `seed` the step times of each differ by a factor that is drawn from within the mean
    relative error of the fit on held-out decodes (for a roofline: that of its fit to Llama 2).
    """
    kept: dict[tuple[str, int], EngineCosts | None] = {}

    def engine(name: str, degree: int) -> EngineCosts | None:
        key = (name, degree)
        if key not in kept:
            kept[key] = _perturbed(name, degree, seed)
        return kept[key]

    return engine


def _perturbed(name: str, degree: int, seed: int | None) -> EngineCosts | None:
    costs = _costs(name, degree)
    if costs is None or seed is None:
        return costs
    fit = fits().get(SHAPES[base_of(name)].fit, {}).get(degree)
    error = fit.errors[1] if fit else 0.11
    factor = 1.0 + Random(f"{seed} {name} {degree}").uniform(-error, error)
    return replace(costs, latency=Slower(costs.latency, factor))


def _costs(name: str, degree: int) -> EngineCosts | None:
    shape = SHAPES[base_of(name)]
    if shape.fit:
        fit = fits()[shape.fit].get(degree)
        if fit is None:
            return None
        one = next(iter(fits()[shape.fit].values()))
        per_pair = one.per_pair * min(fits()[shape.fit]) * 1e12
        latency: LatencyModel = fit
        tokens, kv_bytes = fit.kv_tokens, fit.kv_bytes
    else:
        assert shape.decoder is not None
        try:
            tokens = kv_tokens(shape.decoder, A100_80G, degree)
        except ValueError:
            return None
        latency = roofline(name, shape.decoder, A100_80G, degree)
        kv_bytes = shape.decoder.kv_bytes // degree
        per_pair = 2.0 * shape.decoder.layers * shape.decoder.hidden
    return EngineCosts(
        latency=latency,
        room=ROOM,
        weight_bytes=ROOM - tokens * kv_bytes,
        kv_bytes=kv_bytes,
        longest=min(shape.longest, tokens),
        flops=Flops(2e9 * _active(name), per_pair),
        load_seconds=load_seconds(name),
    )


def _active(name: str) -> float:
    """Return the billions of weights that a token is multiplied with (Mixtral: 2 experts of 8)."""
    return 12.9 if name.startswith("Mixtral") else SHAPES[base_of(name)].weights


def load_seconds(name: str) -> float:
    """Return the seconds to load a model: linear in its weights, within `LOADING`."""
    sizes = [shape.weights for shape in SHAPES.values()]
    low, high = LOADING
    share = (SHAPES[base_of(name)].weights - min(sizes)) / (max(sizes) - min(sizes))
    return low + share * (high - low)


def longest(name: str) -> int:
    """Return l_max of a model in tokens."""
    costs = next(cost for degree in (1, 2, 4) if (cost := _costs(name, degree)))
    return costs.longest


def base_of(name: str) -> str:
    """Return a model's name in `SHAPES`: `vicuna-13b-v1.5 (summaries)` is a vicuna, too."""
    return name.partition(" (")[0]
