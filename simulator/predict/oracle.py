"""The oracle: a predictor that knows the future of a simulation, as a bound to compare with.

Its knowledge can be limited to some quantities; `History` learns the others. It can also have a
given error, as in LAMPS (Figure 11). A prediction is then drawn from a normal distribution around
the truth, with a standard deviation in proportion to the truth.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import exp, inf

from caesura.intercept.kv.pause_durations import OVERDUE, Durations
from caesura.scheduler.predict.forecast import LONG_PAUSE_SECONDS, About, Forecast, Predictor
from caesura.scheduler.predict.history import HORIZON_SECONDS
from caesura.simulator.predict.truth import Expected, Plan, certain, expect

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
