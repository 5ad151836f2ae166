"""The cost of steps and copies on this engine.

Every step costs a constant time. A query token adds little until the device is saturated, and more
beyond that. A token of context that attention reads adds some time too. A copy over the link to
the host costs time in proportion to its tokens. Every choice between recomputing and copying uses
these two costs.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import Any, Literal, NamedTuple

Direction = Literal["out", "in"]

SMALLEST_CHUNK = 16
MIN_LINK_SHARE = 0.25  # the link works beside the engine, so a slower link can still pay

STEP_GAIN = 0.1  # the share of a step's error that corrects the model
COPY_GAIN = 0.1
TOGETHER = 0.3  # the share of a step's error that moves all of its terms together
LARGEST_SURPRISE = 0.5  # a measurement counts as this far from the prediction at most
DOUBTED_COPIES = 2.0  # what all earlier copies count for once a link is doubted
COPY_TOKENS = 64  # a smaller copy measures the link's latency more than its rate
MIN_FACTOR = 1e-3
STALL_MEMORY = 0.98  # the weight that earlier steps keep for each further one full of copies
STALL_PRIOR = 8.0  # so many steps full of copies the stall of the first model counts for
LARGEST_STALL = 2.0  # a step counts as this much longer than predicted at most

LARGEST_SECONDS = 1e9  # bounds that no engine comes near, so that all sums of costs are finite
LARGEST_RATE = 1e15
LARGEST_SATURATION = 2**31


class Recompute(NamedTuple):
    """The cost of recomputing: `chunks` steps, which take `seconds` together.

    `seconds_per_chunk` is the mean time that a chunk adds to a step that runs anyway.
    """

    seconds: float
    chunks: int
    seconds_per_chunk: float


_LARGEST = {
    "saturation": LARGEST_SATURATION,
    "out_rate": LARGEST_RATE,
    "in_rate": LARGEST_RATE,
}


@dataclass(frozen=True, slots=True)
class CostModel:
    """The cost of steps in seconds and the link's rates in tokens per second.

    Every step costs `base`. A query token adds `per_token` up to `saturation` query tokens (S),
    and `per_token_beyond` after them. A token of context that the batch reads adds `per_context`.
    `out_rate` is the link's rate to the host and `in_rate` its rate back; 0 means no link. Each
    second of a copy makes the step beside it `copy_stall` seconds longer, since both read memory.
    Raises `ValueError` for a number that is negative, not finite or beyond all engines, for a step
    that takes no time, and for a saturation below one token.
    """

    base: float
    per_token: float
    per_token_beyond: float
    per_context: float
    saturation: int
    out_rate: float = 0.0
    in_rate: float = 0.0
    copy_stall: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value, most = getattr(self, item.name), _LARGEST.get(item.name, LARGEST_SECONDS)
            if not 0 <= value <= most:
                raise ValueError(
                    f"cost model: {item.name} must be a finite number >= 0, at most {most:g},"
                    f" got {value!r:.40}"
                )
        if self.saturation < 1 or self.base + self.per_token <= 0:
            raise ValueError(
                "cost model: saturation must be >= 1 and base + per_token must be > 0,"
                f" got {self.saturation} and {self.base + self.per_token}"
            )

    def step_seconds(self, tokens: int, context: int) -> float:
        """Return the seconds of a step: T_fwd of `tokens` query tokens that read `context`."""
        seconds = self.base + self.per_token * tokens + self.per_context * context
        if tokens > self.saturation:
            seconds += (self.per_token_beyond - self.per_token) * (tokens - self.saturation)
        return seconds

    def chunk_tokens(self, running_tokens: int) -> int:
        """Return how many tokens to recompute beside the running ones (InferCept, section 4.2).

        The chunk fills the step up to saturation. It has a minimum, so that no resume starves.
        """
        left = self.saturation - running_tokens
        return left if left > SMALLEST_CHUNK else SMALLEST_CHUNK

    @property
    def prefill_seconds_per_token(self) -> float:
        """Return the engine's seconds per recomputed token, in steps that are just saturated."""
        return (self.base + self.per_token * self.saturation) / self.saturation

    def recompute(
        self, missing_tokens: int, running_tokens: int, running_context: int
    ) -> Recompute:
        """Return the cost of recomputing in chunks beside the running requests.

        If no request runs, a chunk adds its whole step.
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

    def swap_seconds(self, tokens: float, direction: Direction) -> float:
        """Return T_swap, the seconds of a copy in one direction; infinite without a link."""
        rate = self.out_rate if direction == "out" else self.in_rate
        if tokens <= 0:
            return 0.0
        return tokens / rate if rate else inf

    def link_tokens(self, seconds: float) -> int:
        """Return N_i, the tokens that the link carries in both directions in a step of `seconds`.

        N_i solves T_swap(N_i) = T_fwd(B_i) (InferCept, section 4.1). Both directions share the
        link, so the slower rate counts.
        """
        return int(max(0.0, seconds) * min(self.out_rate, self.in_rate))

    def stall_seconds(self, direction: Direction) -> float:
        """Return by how many seconds a token's copy makes the steps beside it longer."""
        rate = self.out_rate if direction == "out" else self.in_rate
        return self.copy_stall / rate if rate else inf

    def link_pays(self, min_share: float) -> bool:
        """Return whether it pays to swap and not to recompute.

        The link must load at least `min_share` as fast as the engine recomputes, and copying a
        token out and in must hold up the steps for less time than recomputing it takes.
        """
        recompute = self.prefill_seconds_per_token
        if not self.out_rate or self.in_rate * recompute < min_share:
            return False
        return self.stall_seconds("out") + self.stall_seconds("in") < recompute

    def copies_ahead_pay(self, used: float) -> bool:
        """Return whether a copy pays of which the share `used` will spare a recomputation."""
        spared = self.prefill_seconds_per_token - self.stall_seconds("in")
        return self.out_rate > 0 and used * spared > self.stall_seconds("out")

    @property
    def swap_pays(self) -> bool:
        """Return whether the link loads at least a quarter as fast as the engine recomputes."""
        return self.link_pays(MIN_LINK_SHARE)

    def to_wire(self) -> dict[str, Any]:
        """Return the model as plain data, which `from_wire` reads."""
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "CostModel":
        """Return the model that `to_wire` wrote; raises `ValueError` for any other data."""
        try:
            known = {"copy_stall": 0.0, **wire}  # a calibration may leave it out, to be learned
            values = {item.name: float(known[item.name]) for item in fields(cls)}
            saturation = int(wire["saturation"])
        except (TypeError, KeyError, OverflowError) as error:
            raise ValueError(f"not a cost model: {error!r}, in {wire!r:.200}") from error
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
"""The model of an unmeasured engine: roughly an 8B model on a data-centre GPU with a slow link.

Its rates let swapping pay at first. Otherwise nothing would be swapped, and the rates could never
be measured.
"""


class CostTracker:
    """Corrects a cost model by measurements while the engine runs; it has no clock of its own.

    Each of a step's four terms has a factor, corrected by normalised least mean squares. A step's
    error moves a factor by its term's share of the prediction. It also moves all factors a
    little, since most changes are of the device's speed as a whole. Only a tenth of an error is
    applied, and an error counts as at most half of the prediction. So one outlier moves the model
    by a twentieth at most, and a lasting change is followed at that rate. A zero term stays zero.

    The rates of a link that was never measured are a guess, which the mean of the first copies
    replaces.

    What copies cost the steps beside them is a least-squares slope: by how much these steps were
    longer than predicted, against the share of each that a copy filled. Earlier steps fade. Such a
    step corrects no other term, since one error cannot tell which of two causes it has.
    """

    def __init__(self, model: CostModel = PRIOR, link_guessed: bool = False) -> None:
        """Start from `model`; `link_guessed` says that its link was never measured."""
        self.restart(model, link_guessed)

    def restart(self, model: CostModel, link_guessed: bool = False) -> None:
        """Discard all observations and continue from another model."""
        self._start = model
        seen = 0.0 if link_guessed else 1 / COPY_GAIN
        self._copies: dict[Direction, float] = {"out": seen, "in": seen}
        self._factors = [1.0, 1.0, 1.0, 1.0]
        self._rates: dict[Direction, float] = {"out": model.out_rate, "in": model.in_rate}
        self._lost, self._copied = STALL_PRIOR * model.copy_stall, STALL_PRIOR
        self._model: CostModel | None = model

    @property
    def model(self) -> CostModel:
        """Return the corrected model; the same object until the next observation."""
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
                self._stall(),
            )
        return self._model

    def observe_step(
        self, tokens: int, context: int, seconds: float, copied_tokens: float = 0.0
    ) -> None:
        """Correct the model by a step of `tokens` query tokens that read `context` tokens.

        The KV of `copied_tokens` tokens was copied to the host beside it.
        """
        if not 0 < seconds < inf:
            return
        if copied_tokens > 0 and self._rates["out"] > 0:
            self._observe_stall(self.model.step_seconds(tokens, context), seconds, copied_tokens)
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
            factors[index] = max(MIN_FACTOR, factors[index] + move * (term + common))
        self._model = None

    def _observe_stall(self, predicted: float, seconds: float, copied_tokens: float) -> None:
        """Learn from a step what the copy beside it has cost."""
        share = min(1.0, copied_tokens / self._rates["out"] / predicted)
        lost = max(-1.0, min(LARGEST_STALL, seconds / predicted - 1))
        kept = STALL_MEMORY ** (share * share)
        self._lost = kept * self._lost + share * lost
        self._copied = kept * self._copied + share * share
        self._model = None

    def _stall(self) -> float:
        """Return the seconds that a step loses for each second of a copy beside it."""
        return max(0.0, self._lost) / self._copied

    def doubt_link(self) -> None:
        """Let the next copies in either direction count as if only a few had been seen."""
        for direction in self._copies:
            self._copies[direction] = min(self._copies[direction], DOUBTED_COPIES)
        share = min(1.0, DOUBTED_COPIES / self._copied)
        self._lost, self._copied = share * self._lost, share * self._copied

    def observe_copy(self, direction: Direction, tokens: int, seconds: float) -> None:
        """Correct a link rate by a copy of the KV of `tokens` tokens that took `seconds`."""
        if tokens <= 0 or not 0 < seconds < inf:
            return
        rate = self._rates[direction]
        measured = seconds / tokens
        if rate > 0:
            measured = 1 / rate + self._correction(direction, tokens, measured)
        self._rates[direction] = min(1 / max(measured, 1 / LARGEST_RATE), LARGEST_RATE)
        self._model = None

    def _correction(self, direction: Direction, tokens: int, measured: float) -> float:
        """Return what to add to the link's seconds per token after a copy that took `measured`."""
        predicted, seen = 1 / self._rates[direction], self._copies[direction]
        weight = min(1.0, tokens / COPY_TOKENS)
        self._copies[direction] += weight
        if seen < 1 / COPY_GAIN:  # the mean of the first copies
            return weight / (seen + 1) * (measured - predicted)
        return COPY_GAIN * weight * _surprise(measured, predicted)


def _surprise(measured: float, predicted: float) -> float:
    """Return measured - predicted, limited to `LARGEST_SURPRISE` of the prediction."""
    most = LARGEST_SURPRISE * predicted
    return max(-most, min(most, measured - predicted))


class Pace(NamedTuple):
    """Tokens of KV that all workers have copied, and the seconds of the slowest of them.

    The copies ran for `beside` of the `seconds` during a forward pass.
    """

    tokens: int
    seconds: float
    beside: float


@dataclass(slots=True)
class _Ahead:
    """What one worker has copied, and not all workers have."""

    tokens: float = 0.0
    seconds: float = 0.0
    beside: float = 0.0

    def take(self, tokens: float) -> tuple[float, float]:
        """Remove so many tokens; return their part of the seconds, in all and beside a step."""
        share = min(1.0, tokens / self.tokens)
        seconds, beside = self.seconds * share, self.beside * share
        self.tokens -= tokens
        self.seconds -= seconds
        self.beside -= beside
        return seconds, beside


class WorkersPace:
    """Pairs up the reports of `workers` workers about copies in one direction.

    Each worker copies its own share of every block. A block is on the host, or back, when all
    workers have copied their share, so the slowest sets the pace. Their reports come in different
    steps, so that a sum or a maximum over a step's reports would be wrong in either direction.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._ahead: dict[int, _Ahead] = {}

    def add(self, worker: int, tokens: float, seconds: float, beside: float) -> Pace | None:
        """Take a worker's report; return what all workers have copied by now, or None."""
        ahead = self._ahead.setdefault(worker, _Ahead())
        ahead.tokens += tokens
        ahead.seconds += seconds
        ahead.beside += beside
        if len(self._ahead) < self._workers:
            return None
        done = int(min(each.tokens for each in self._ahead.values()) + 0.5)
        if done < 1:
            return None
        slowest = max(each.take(done) for each in self._ahead.values())
        return Pace(done, *slowest)

    def forget(self) -> None:
        """Drop what some workers have not copied, since they will not."""
        self._ahead.clear()
