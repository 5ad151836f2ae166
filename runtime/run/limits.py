"""Limits of a run: turns, calls, tokens, seconds and money."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from caesura.intercept.calls.events import TurnEnded
from caesura.runtime.errors import LimitReached, UsageError
from caesura.scheduler.messages import Sampling
from caesura.tools.context import SharedBudget
from caesura.tools.run_view import Usage

if TYPE_CHECKING:
    from caesura.tools.config.caesura_toml import LimitSettings

T = TypeVar("T")

Clock = Callable[[], float]
"""Monotonic seconds, such as `time.monotonic`."""
MILLION = 1_000_000
_WHAT = {"max_tokens": " tokens", "max_requests": " turns of all agents", "max_calls": " calls"} | {
    "max_cost": ", the cost of its tokens"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a million tokens cost, in any currency.

    `prompt` is for tokens of the context that a turn has to compute, `cached` for those that it
    does not, and `completion` for decoded ones. Without `cached` they cost as much as the others.

    Raises `UsageError` for a price that is no number from 0.
    """

    prompt: float
    completion: float
    cached: float | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "completion", "cached"):
            price = getattr(self, name)
            if not (price is None and name == "cached") and not _is_number(price, 0):
                raise UsageError(f"the price {name} must be a number from 0, got {price!r}")

    def of(self, computed: int, cached: int, completion: int) -> float:
        """Return what a turn costs, by its tokens."""
        for_cached = self.prompt if self.cached is None else self.cached
        told = computed * self.prompt + cached * for_cached + completion * self.completion
        return told / MILLION


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one run; None means no bound.

    `max_turns` counts the run's own turns of decoding: the first one, and one for every resume
    after calls. `max_seconds` is wall time with tools. The others count what the agents do too
    that the run's tools run: `max_tokens` completion tokens, `max_requests` turns, `max_calls`
    calls of tools, and `max_cost` what all tokens cost by `prices`.

    A run that needs more than a bound raises `LimitReached`. If `max_tokens` cuts the text, the
    run ends without an error and with reason `length`, as at `Sampling.max_tokens`. A cost is known
    at the end of a turn, so that the last turn may exceed `max_cost`. A sub-agent without `prices`
    has those of the run that it works for.

    At the end of a turn the run waits for calls in the background: for `max_wait_seconds` at most,
    without a result. It then ends with the answer that there is, and cancels them.

    Raises `UsageError` for a bound that is no positive number, and for `max_cost` without `prices`.
    """

    max_turns: int | None = 16
    max_tokens: int | None = None
    max_seconds: float | None = None
    max_requests: int | None = None
    max_calls: int | None = None
    max_cost: float | None = None
    prices: Prices | None = None
    max_wait_seconds: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None or each.name == "prices":
                continue
            if each.name == "max_wait_seconds":
                if not _is_number(value, 0):
                    raise UsageError(f"{each.name} must be a number from 0, or None, got {value!r}")
            elif not _is_number(value):
                raise UsageError(f"{each.name} must be a positive number or None, got {value!r}")
        if not isinstance(self.prices, Prices | None):
            raise UsageError(
                f"prices must be Prices(prompt=..., completion=...), got {self.prices!r}"
            )
        if self.max_cost is not None and self.prices is None:
            raise UsageError(
                f"max_cost={self.max_cost} needs prices=Prices(prompt=..., completion=...)"
            )


def _is_number(value: object, least: float | None = None) -> bool:
    """Return whether it is a positive number, or one from `least`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value > 0 if least is None else value >= least


def bounded(limits: Limits, max_tokens: int | None) -> Limits:
    """Return the limits, with the run's tokens lowered to a further bound, if there is one."""
    bounds = [bound for bound in (limits.max_tokens, max_tokens) if bound is not None]
    return replace(limits, max_tokens=min(bounds, default=None))


def configured_limits(settings: "LimitSettings") -> Limits:
    """Return the limits of a configuration; missing ones have the defaults of `Limits`.

    Raises `UsageError` for `max_cost` without prices.
    """
    said = settings.model_dump(exclude={"max_result_tokens", "prices"}, exclude_none=True)
    prices = settings.prices
    return Limits(**said, prices=None if prices is None else Prices(**prices.model_dump()))


class Budget:
    """The rest of a run's limits. `LimitReached.limit` is the name of the field of `Limits`.

    `shared` is the budget of the run whose tool runs this one's agent: what this run spends is
    spent there too.
    """

    def __init__(self, limits: Limits, clock: Clock, shared: SharedBudget | None = None) -> None:
        self._limits = limits
        self._shared = shared
        self._clock = clock
        self._turns = 0
        self._requests = 0
        self._usage = Usage()
        self._cost = 0.0
        self._deadline = None if limits.max_seconds is None else clock() + limits.max_seconds
        self.held_tokens = 0
        """The tokens that the engine's session holds, which the next turn's prompt follows."""

    @property
    def usage(self) -> Usage:
        """What was used so far, with that of sub-agents."""
        return self._usage

    @property
    def cost(self) -> float:
        """What that cost, by `Limits.prices`."""
        return self._cost

    def begin_turn(self, sampling: Sampling | None) -> Sampling | None:
        """Count a turn; return `sampling` with `max_tokens` lowered to the run's remaining tokens.

        Raises `LimitReached` if no turn, token, second or money is left, and `UsageError` if the
        run has a token limit but `sampling` is None.
        """
        turns, left = self._limits.max_turns, self.tokens_left
        if turns is not None and self._turns >= turns:
            raise self._reached("max_turns", f"the run needs more than max_turns={turns} turns")
        self._check("max_tokens", "max_requests", "max_cost")
        self._seconds_left()
        self._turns += 1
        self.begin_request()
        if left is None:
            return sampling
        if sampling is None:
            raise UsageError(
                f"a run with max_tokens={self._limits.max_tokens} needs `sampling`, got None: pass"
                " the settings that should replace the session's"
            )
        wanted = sampling.max_tokens
        return replace(sampling, max_tokens=left if wanted is None else min(wanted, left))

    def begin_call(self) -> None:
        """Count a call of a tool. Raises `LimitReached` if there were as many as there may be."""
        self._check("max_calls")
        self.add(Usage(calls=1), 0.0)

    def end_turn(self, turn: TurnEnded) -> None:
        """Count the tokens of a turn that has ended."""
        context = self.held_tokens + turn.prompt_tokens
        self.held_tokens = context + turn.completion_tokens
        used = Usage(
            turn.prompt_tokens,
            turn.completion_tokens,
            turn.cached_tokens,
            turns=1,
            reasoning_tokens=turn.reasoning_tokens,
        )
        computed = max(0, context - turn.cached_tokens)
        self.add(used, self.price(computed, turn.cached_tokens, turn.completion_tokens))

    @property
    def tokens_left(self) -> int | None:
        """The completion tokens that may still be decoded; None: any number."""
        own = self._limits.max_tokens
        shared = None if self._shared is None else self._shared.tokens_left
        left = [None if own is None else own - self._usage.completion_tokens, shared]
        return min((each for each in left if each is not None), default=None)

    def price(self, computed: int, cached: int, completion: int) -> float:
        """Return what tokens cost, by the run's own prices or those of the run it works for."""
        if self._limits.prices is not None:
            return self._limits.prices.of(computed, cached, completion)
        return 0.0 if self._shared is None else self._shared.price(computed, cached, completion)

    def begin_request(self) -> None:
        """Count a turn of this run's model, or of a sub-agent's, that begins."""
        self._requests += 1
        if self._shared is not None:
            self._shared.begin_request()

    def add(self, usage: Usage, cost: float) -> None:
        """Count what this run or a sub-agent has used."""
        self._usage += usage
        self._cost += cost
        if self._shared is not None:
            self._shared.add(usage, cost)

    def is_used_up(self, limit: str) -> bool:
        """Return whether nothing is left of a limit, here or in the run that this one works for."""
        return self._own_is_used_up(limit) or (
            self._shared is not None and self._shared.is_used_up(limit)
        )

    def _own_is_used_up(self, limit: str) -> bool:
        bound = getattr(self._limits, limit)
        used = {
            "max_tokens": self._usage.completion_tokens,
            "max_requests": self._requests,
            "max_calls": self._usage.calls,
            "max_cost": self._cost,
        }
        return bound is not None and used[limit] >= bound

    def _check(
        self, *limits: Literal["max_tokens", "max_requests", "max_calls", "max_cost"]
    ) -> None:
        """Raise `LimitReached` if one of the limits is used up."""
        for limit in limits:
            if self._own_is_used_up(limit):
                bound = f"{limit}={getattr(self._limits, limit)}"
                raise self._reached(limit, f"the run needs more than {bound}{_WHAT[limit]}")
            if self.is_used_up(limit):
                told = f"the {limit} of the run it is part of"
                raise self._reached(limit, f"the run needs more than {told}")

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Return the awaitable's result; cancel it and raise `LimitReached` when time runs out."""
        try:
            async with asyncio.timeout(self._seconds_left()) as scope:
                return await awaitable
        except TimeoutError:
            # A TimeoutError of the engine is not a limit.
            if scope.expired():
                raise self._out_of_time() from None
            raise

    def _seconds_left(self) -> float | None:
        if self._deadline is None:
            return None
        left = self._deadline - self._clock()
        if left <= 0:
            raise self._out_of_time()
        return left

    def _out_of_time(self) -> LimitReached:
        seconds = self._limits.max_seconds
        return self._reached("max_seconds", f"the run took longer than max_seconds={seconds:g}")

    def _reached(self, limit: str, message: str) -> LimitReached:
        return LimitReached(limit, message, self._usage, self._cost)
