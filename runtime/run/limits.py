"""Limits of a run: turns, completion tokens and seconds."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from caesura.runtime.errors import LimitReached, UsageError
from caesura.scheduler.messages import Sampling
from caesura.tools.config.caesura_toml import LimitSettings
from caesura.tools.context import TokenBudget

T = TypeVar("T")

Clock = Callable[[], float]
"""Monotonic seconds, such as `time.monotonic`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one run; None means no bound.

    `max_turns` counts turns of decoding: the first one, and one for every resume after calls.
    `max_tokens` counts completion tokens over the run, with those of the agents that its tools
    run. `max_seconds` is wall time with tools.

    A run that needs more than a bound raises `LimitReached`. If `max_tokens` cuts the text, the
    run ends without an error and with reason `length`, as at `Sampling.max_tokens`.

    Raises `UsageError` for a bound that is no positive number.
    """

    max_turns: int | None = 16
    max_tokens: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_tokens", "max_seconds"):
            value = getattr(self, name)
            if value is None:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not value > 0:
                raise UsageError(f"{name} must be a positive number or None, got {value!r}")


def bounded(limits: Limits, max_tokens: int | None) -> Limits:
    """Return the limits, with the run's tokens lowered to a further bound, if there is one."""
    bounds = [bound for bound in (limits.max_tokens, max_tokens) if bound is not None]
    return replace(limits, max_tokens=min(bounds, default=None))


def configured_limits(settings: LimitSettings) -> Limits:
    """Return the limits of a configuration; missing ones have the defaults of `Limits`."""
    said = settings.model_dump(exclude={"max_result_tokens"}, exclude_none=True)
    return Limits(**said)


class Budget:
    """The rest of a run's limits. `LimitReached.limit` is the name of the field of `Limits`.

    `shared` is the budget of the run whose tool runs this one's agent: its tokens are spent too.
    """

    def __init__(self, limits: Limits, clock: Clock, shared: TokenBudget | None = None) -> None:
        self._limits = limits
        self._shared = shared
        self._clock = clock
        self._turns = 0
        self._tokens = 0
        self._deadline = None if limits.max_seconds is None else clock() + limits.max_seconds

    def begin_turn(self, sampling: Sampling | None) -> Sampling | None:
        """Count a turn; return `sampling` with `max_tokens` lowered to the run's remaining tokens.

        Raises `LimitReached` if no turn, token or second is left, and `UsageError` if the run has
        a token limit but `sampling` is None.
        """
        turns, tokens, left = self._limits.max_turns, self._limits.max_tokens, self.tokens_left
        if turns is not None and self._turns >= turns:
            raise LimitReached("max_turns", f"the run needs more than max_turns={turns} turns")
        if left is not None and left <= 0:
            own = tokens is not None and self._tokens >= tokens
            told = (
                f"max_tokens={tokens} tokens" if own else "the max_tokens of the run it is part of"
            )
            raise LimitReached("max_tokens", f"the run needs more than {told}")
        self._seconds_left()
        self._turns += 1
        if left is None:
            return sampling
        if sampling is None:
            raise UsageError(
                f"a run with max_tokens={tokens} needs `sampling`, got None: pass the settings "
                "that should replace the session's"
            )
        wanted = sampling.max_tokens
        return replace(sampling, max_tokens=left if wanted is None else min(wanted, left))

    @property
    def tokens_left(self) -> int | None:
        """The completion tokens that may still be decoded; None: any number."""
        own = self._limits.max_tokens
        shared = None if self._shared is None else self._shared.tokens_left
        left = [None if own is None else own - self._tokens, shared]
        return min((each for each in left if each is not None), default=None)

    def spend(self, tokens: int) -> None:
        """Count completion tokens."""
        self._tokens += tokens
        if self._shared is not None:
            self._shared.spend(tokens)

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
        return LimitReached("max_seconds", f"the run took longer than max_seconds={seconds:g}")
