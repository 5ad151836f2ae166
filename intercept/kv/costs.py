"""What steps and copies cost on the engine at hand.

A step costs some time whatever it does, a little per token until the device is saturated, more
per token beyond that, and some per token of context that its attention reads. A copy over the link
to the host costs time by its tokens. Everything that decides between recomputing and copying asks
these two.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf, isfinite
from typing import Any, Literal, NamedTuple

Direction = Literal["out", "in"]

SMALLEST_CHUNK = 16
SWAP_ADVANTAGE = 0.25  # the link works beside the engine: it need not be faster to be worth it

STEP_GAIN = 0.1  # of a step's error is believed
COPY_GAIN = 0.1
TOGETHER = 0.3  # how far the terms of a step are taken to change together
LARGEST_SURPRISE = 0.5  # a measurement counts as this far from the prediction, at most
COPY_TOKENS = 64  # a smaller copy measures the link's latency more than its rate
LEAST_FACTOR = 1e-3


class Recompute(NamedTuple):
    """What recomputing takes: `chunks` steps, `seconds` until it is done.

    `seconds_per_chunk` is what a chunk adds, on average, to a step that runs anyway.
    """

    seconds: float
    chunks: int
    seconds_per_chunk: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """The cost of steps in seconds and the link's rates in tokens per second.

    `base` is what any step costs, `per_token` what a query token adds up to `saturation` query
    tokens (S), `per_token_beyond` what it adds beyond them, `per_context` what a token of context
    adds that the batch reads. `out_rate` and `in_rate` are the link's to the host and back; 0 is
    no link. Raises `ValueError` for numbers that no engine has.
    """

    base: float
    per_token: float
    per_token_beyond: float
    per_context: float
    saturation: int
    out_rate: float = 0.0
    in_rate: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not (isfinite(value) and value >= 0):
                raise ValueError(f"cost model: {item.name} is {value!r}")
        if self.saturation < 1 or self.base + self.per_token <= 0:
            raise ValueError("cost model: a step takes time and saturates at one token at least")

    def step_seconds(self, tokens: int, context: int) -> float:
        """Return how long a step takes: T_fwd of `tokens` query tokens that read `context`."""
        seconds = self.base + self.per_token * tokens + self.per_context * context
        if tokens > self.saturation:
            seconds += (self.per_token_beyond - self.per_token) * (tokens - self.saturation)
        return seconds

    def chunk_tokens(self, running_tokens: int) -> int:
        """Return how many tokens to recompute beside the running ones (InferCept, section 4.2).

        It is what is left up to saturation, and never so little that a resume starves.
        """
        left = self.saturation - running_tokens
        return left if left > SMALLEST_CHUNK else SMALLEST_CHUNK

    @property
    def prefill_seconds_per_token(self) -> float:
        """Seconds of the engine that a recomputed token costs, in steps that are just saturated."""
        return (self.base + self.per_token * self.saturation) / self.saturation

    def recompute(
        self, missing_tokens: int, running_tokens: int, running_context: int
    ) -> Recompute:
        """Return what recomputing takes, chunk by chunk, beside the running requests.

        Where nothing runs, no step runs anyway: a chunk adds all of its step.
        """
        if missing_tokens <= 0:
            return Recompute(0.0, 0, 0.0)
        chunks = -(-missing_tokens // self.chunk_tokens(running_tokens))
        chunk = missing_tokens / chunks
        added = self.per_token * chunk + self.per_context * missing_tokens / 2
        beyond = chunk + running_tokens - self.saturation
        if beyond > 0:
            added += (self.per_token_beyond - self.per_token) * min(chunk, beyond)
        anyway = self.step_seconds(running_tokens, running_context)
        per_chunk = added if running_tokens else anyway + added
        return Recompute(chunks * (anyway + added), chunks, per_chunk)

    def swap_seconds(self, tokens: int, direction: Direction) -> float:
        """Return T_swap: how long the link takes one way; infinite where there is none."""
        rate = self.out_rate if direction == "out" else self.in_rate
        if tokens <= 0:
            return 0.0
        return tokens / rate if rate else inf

    def link_tokens(self, seconds: float) -> int:
        """Return N_i, what the link carries while a step of `seconds` runs, both ways together.

        N_i solves T_swap(N_i) = T_fwd(B_i) (InferCept, section 4.1). Out and in share the link;
        the slower of the two rates is the one to rely on.
        """
        return int(max(0.0, seconds) * min(self.out_rate, self.in_rate))

    @property
    def swap_pays(self) -> bool:
        """Whether the link brings at least a quarter of what the engine recomputes meanwhile."""
        return self.out_rate > 0 and self.in_rate * self.prefill_seconds_per_token >= SWAP_ADVANTAGE

    def to_wire(self) -> dict[str, Any]:
        """Return plain data; `from_wire` reads it back."""
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "CostModel":
        """Read what `to_wire` wrote; raises `ValueError` if it is anything else."""
        try:
            values = {item.name: float(wire[item.name]) for item in fields(cls)}
            saturation = int(wire["saturation"])
        except (TypeError, KeyError, OverflowError) as error:
            raise ValueError(f"not a cost model: {error!r}") from error
        del values["saturation"]
        return cls(saturation=saturation, **values)


PRIOR = CostModel(
    base=0.01,
    per_token=3e-5,
    per_token_beyond=8e-5,
    per_context=3e-8,
    saturation=256,
    out_rate=50_000.0,
    in_rate=50_000.0,
)
"""An engine that nobody has measured: an 8B model on a data-centre GPU, roughly, and a slow link.

Swapping is taken to pay until it is measured not to, since it cannot be measured without.
"""


class CostTracker:
    """Corrects a cost model by what is measured while the engine runs; no clock of its own.

    The four terms of a step have a factor each, and a step's error moves those by which it was
    predicted, and all of them a little, since what changes is most often the device's pace
    (normalised least mean squares). A part of each error is believed, and an error larger than
    half of the prediction counts as half: one hiccup moves the model by a twentieth, while a
    change that lasts is followed at that rate. A term that the model says is zero stays zero.
    """

    def __init__(self, model: CostModel = PRIOR) -> None:
        self.restart(model)

    def restart(self, model: CostModel) -> None:
        """Forget what was observed, and go on from another model."""
        self._start = model
        self._factors = [1.0, 1.0, 1.0, 1.0]
        self._rates: dict[Direction, float] = {"out": model.out_rate, "in": model.in_rate}
        self._model: CostModel | None = model

    @property
    def model(self) -> CostModel:
        """The model as corrected so far; the same object until something is observed."""
        if self._model is None:
            start, factors = self._start, self._factors
            self._model = CostModel(
                start.base * factors[0],
                start.per_token * factors[1],
                start.per_token_beyond * factors[2],
                start.per_context * factors[3],
                start.saturation,
                self._rates["out"],
                self._rates["in"],
            )
        return self._model

    def observe_step(self, tokens: int, context: int, seconds: float) -> None:
        """Learn from a step of `tokens` query tokens that read `context` tokens of context."""
        if not 0 < seconds < inf:
            return
        start, factors = self._start, self._factors
        beyond = max(0, tokens - start.saturation)
        terms = (
            start.base,
            start.per_token * (tokens - beyond),
            start.per_token_beyond * beyond,
            start.per_context * context,
        )
        common = TOGETHER * sum(terms)
        power = sum(term * (term + common) for term in terms)
        if power <= 0:
            return
        predicted = sum(f * term for f, term in zip(factors, terms, strict=True))
        move = STEP_GAIN * _surprise(seconds, predicted) / power
        for index, term in enumerate(terms):
            factors[index] = max(LEAST_FACTOR, factors[index] + move * (term + common))
        self._model = None

    def observe_copy(self, direction: Direction, tokens: int, seconds: float) -> None:
        """Learn from a copy of `tokens` tokens' KV that took `seconds`."""
        if tokens <= 0 or not 0 < seconds < inf:
            return
        rate = self._rates[direction]
        measured = seconds / tokens
        if rate <= 0:
            self._rates[direction] = 1 / measured
        else:
            gain = COPY_GAIN * min(1.0, tokens / COPY_TOKENS)
            self._rates[direction] = 1 / (1 / rate + gain * _surprise(measured, 1 / rate))
        self._model = None


def _surprise(measured: float, predicted: float) -> float:
    """Return by how much a measurement is off, no more than `LARGEST_SURPRISE` of it."""
    most = LARGEST_SURPRISE * predicted
    return max(-most, min(most, measured - predicted))
