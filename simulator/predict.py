"""Predictors in a simulation: an oracle that knows future sessions, and the scheduler's own."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf
from random import Random
from typing import Protocol

from caesura.intercept.kv.pause_durations import OVERDUE, Durations
from caesura.scheduler.policy import names
from caesura.scheduler.policy.names import make_named
from caesura.scheduler.predict.forecast import LONG_PAUSE_SECONDS, About, Forecast, Predictor
from caesura.scheduler.predict.history import HORIZON_SECONDS, History
from caesura.scheduler.predict.tables import PausePredictor

MIN_SHARE = 0.01
"""A prediction is at least this share of the truth."""

MIN_SECONDS = 1e-9

CERTAIN_OBSERVATIONS = 4
"""The number of equal observations that represent a known pause."""


class PlannedSegment(Protocol):
    """A future segment; `tool` is empty in the last one."""

    @property
    def given_tokens(self) -> int:
        """Return the tokens that it is given: its prompt, or a tool's result."""
        ...

    @property
    def decode_tokens(self) -> int:
        """Return the tokens that it decodes."""
        ...

    @property
    def tool(self) -> str:
        """Return the tool that it calls at its end."""
        ...

    @property
    def tool_seconds(self) -> float:
        """Return the seconds that this call takes."""
        ...


class Plan(Protocol):
    """A future session."""

    @property
    def segments(self) -> Sequence[PlannedSegment]:
        """Return its segments in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Expected:
    """The prediction of one segment; `left` is the number of calls from its start on."""

    decode_tokens: float
    given_tokens: float
    tool: str
    seconds: float
    left: int


def certain(seconds: float) -> Durations:
    """Return durations for a pause of exactly `seconds`: a sample of it, and hardly any prior.

    The remaining time of such a pause is exact. Once the pause is overdue, it is expected to last
    as long again, and at least `OVERDUE` times the elapsed time.
    """
    seconds = max(seconds, MIN_SECONDS)
    return Durations(seconds, 1e-9, (seconds,) * CERTAIN_OBSERVATIONS)


def expect(plan: Plan, key: str, error: float, seed: int) -> tuple[Expected, ...]:
    """Return the prediction of each segment: N(truth, `error` * truth) (LAMPS, Figure 11).

    It is drawn from `seed`, the session's key and the segment's number, so that it is always the
    same. Without an error it is the truth.
    """
    last = len(plan.segments) - 1
    expected = []
    for index, segment in enumerate(plan.segments):
        random = Random(f"{seed} {key} {index}")
        truth = (segment.decode_tokens, segment.given_tokens, segment.tool_seconds, last - index)
        decode, given, seconds, left = (
            max(MIN_SHARE * value, random.gauss(value, error * value)) for value in truth
        )
        expected.append(Expected(decode, given, segment.tool, seconds, round(left)))
    return tuple(expected)


QUANTITIES = ("lengths", "pauses", "calls", "results")

MAX_SESSIONS = 4096


class Oracle:
    """Predicts sessions from their plans.

    `truth` returns the plan of a session, or None. `otherwise` predicts sessions without a plan,
    and the quantities that are not among `knows` (names of `QUANTITIES`). `error` is the standard
    deviation of a prediction relative to the truth. Each prediction is drawn from `seed`, the
    session's key and the segment's number, so that it is always the same. Raises `ValueError` for
    a negative error or an unknown quantity.
    """

    name = "oracle"

    def __init__(
        self,
        truth: Callable[[str], Plan | None],
        otherwise: Predictor,
        error: float = 0.0,
        seed: int = 0,
        knows: Sequence[str] = QUANTITIES,
    ) -> None:
        if not 0 <= error < inf:
            raise ValueError(f"error must be a finite number >= 0, got {error!r}")
        unknown = sorted(set(knows) - set(QUANTITIES))
        if unknown or not knows:
            raise ValueError(
                f"knows must name at least one of {', '.join(QUANTITIES)},"
                f" got {'+'.join(knows) or 'none'}"
            )
        self._truth = truth
        self._otherwise = otherwise
        self._error = error
        self._seed = seed
        self._knows = frozenset(knows)
        self._expected: OrderedDict[str, tuple[Expected, ...]] = OrderedDict()
        self._at: OrderedDict[str, int] = OrderedDict()  # the segment of the latest forecast

    def forecast(self, about: About) -> Forecast:
        """Return the session's true future: mean tokens of its segments, and its next pause."""
        forecast = self._otherwise.forecast(about)
        self._at[about.key] = about.calls
        self._at.move_to_end(about.key)
        if len(self._at) > MAX_SESSIONS:
            self._at.popitem(last=False)
        future = self._future(about.key)[about.calls :]
        if not future:
            return forecast
        now, later = future[0], future[1:]
        if "lengths" in self._knows:
            left = now.decode_tokens - about.decoded_tokens
            left = left if left > 0 else max(1.0, OVERDUE * about.decoded_tokens)
            forecast = replace(
                forecast,
                decode_tokens=left,
                decode_quantiles=(left,),
                segment_tokens=_mean([one.decode_tokens for one in later], now.decode_tokens),
            )
        if "results" in self._knows and later:
            returned = _mean([one.given_tokens for one in later], 0.0)
            forecast = replace(forecast, result_tokens=returned)
        if "pauses" in self._knows and later:
            discount = 1 - exp(-now.seconds / HORIZON_SECONDS)
            forecast = replace(
                forecast,
                pause_seconds=now.seconds,
                pause_discount=discount,
                long_pause=float(now.seconds > LONG_PAUSE_SECONDS),
            )
        if "calls" in self._knows:
            forecast = replace(forecast, ends=(0.0,) * now.left + (1.0,))
        return forecast

    def parts(self, about: About) -> Mapping[str, Forecast]:
        """Return the forecast of the predictor that it asks for what it does not know."""
        return {self._otherwise.name: self._otherwise.forecast(about)}

    def pause(self, key: str, tool: str | None, calls: int | None = None) -> Durations:
        """Return the duration of the pause for the last of `calls` calls.

        If `calls` is None, the pause is that of the first call of the tool since the session's
        latest forecast. That forecast may be old, since a request that waits alone has none.
        """
        if "pauses" in self._knows:
            future = self._future(key)
            if calls is None:
                ahead = [one for one in future[self._at.get(key, 0) :] if one.tool]
                called = [one for one in ahead if one.tool == tool] or ahead
            else:
                called = [one for one in future[calls - 1 : calls] if one.tool]
            if called:
                return certain(called[0].seconds)
        return self._otherwise.pause(key, tool, calls)

    def observe_segment(self, about: About, decoded_tokens: int, called: bool) -> None:
        """Forward the observation to the other predictor."""
        self._otherwise.observe_segment(about, decoded_tokens, called)

    def observe_result(self, tool: str | None, tokens: int) -> None:
        """Forward the observation to the other predictor."""
        self._otherwise.observe_result(tool, tokens)

    def observe_pause(self, key: str, tool: str | None, seconds: float) -> None:
        """Forward the observation to the other predictor."""
        self._otherwise.observe_pause(key, tool, seconds)

    def observe_end(self, about: About, kinds: Collection[str]) -> None:
        """Forward the observation to the other predictor."""
        self._otherwise.observe_end(about, kinds)

    def observe_abort(self, key: str) -> None:
        """Forward the observation to the other predictor."""
        self._otherwise.observe_abort(key)

    def _future(self, key: str) -> tuple[Expected, ...]:
        """Return the predictions for the session's segments; () if it has no plan."""
        expected = self._expected.get(key)
        if expected is None:
            plan = self._truth(key)
            if plan is None:
                return ()
            expected = self._expected[key] = expect(plan, key, self._error, self._seed)
            if len(self._expected) > MAX_SESSIONS:
                self._expected.popitem(last=False)
        return expected


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


Truth = Callable[[str], Plan | None]
"""Returns the plan of the session with a key, or None if the session is unknown."""


def make_predictor(spec: str, truth: Truth, pauses: PausePredictor | None = None) -> Predictor:
    """Return the predictor of a spec: `oracle:error=0.3,knows=pauses+calls`, `history`, ...

    An oracle looks sessions up in `truth`. `pauses` holds observed pauses and continues to learn.
    Raises `ValueError` that says what is wrong.
    """

    def oracle(error: float = 0.0, seed: int = 0, knows: str = "+".join(QUANTITIES)) -> Predictor:
        return Oracle(truth, History(pauses), error, seed, knows.split("+"))

    if spec.partition(":")[0] != "oracle":
        return names.make_predictor(spec, pauses)
    return make_named(spec, {"oracle": oracle}, "prediction")
