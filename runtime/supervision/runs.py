"""The runs under way, and their end where nobody can use what their tools will return."""

import asyncio
from collections.abc import Collection, Iterable
from weakref import WeakSet

from caesura.tools.dispatch.dispatcher import Dispatcher


class Runs:
    """The runs of one server, each by the dispatcher of its tools."""

    def __init__(self) -> None:
        # A run's dispatcher lives as long as the run does.
        self._dispatchers: WeakSet[Dispatcher] = WeakSet()

    def add(self, dispatcher: Dispatcher) -> None:
        """Know a run from now on, by its dispatcher."""
        self._dispatchers.add(dispatcher)

    async def break_off(self, error: Exception) -> None:
        """Cancel all tools under way and wait for their end; the runs of them raise `error`."""
        await _broken_off(list(self._dispatchers), error)

    async def break_off_long(
        self, error: Exception, sessions: Collection[str], longest_seconds: float
    ) -> None:
        """Break off the runs of these `sessions`, and those whose tools need longer than this."""
        long = [
            each
            for each in self._dispatchers
            if each.in_flight
            and (each.scope.session in sessions or each.expected_seconds_left() > longest_seconds)
        ]
        await _broken_off(long, error)


async def _broken_off(dispatchers: Iterable[Dispatcher], error: Exception) -> None:
    await asyncio.gather(*(each.break_off(error) for each in dispatchers))
