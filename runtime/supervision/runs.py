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
        self._kept: WeakSet[Dispatcher] = WeakSet()

    def add(self, dispatcher: Dispatcher, *, kept: bool = False) -> None:
        """Know a run from now on, by its dispatcher; a later process goes on with a `kept` one."""
        (self._kept if kept else self._dispatchers).add(dispatcher)

    async def break_off(self, error: Exception) -> None:
        """Cancel all tools under way and wait for their end; the runs of them raise `error`.

        Runs that are kept go on elsewhere, and are left alone.
        """
        await _broken_off(list(self._dispatchers), error)

    async def break_off_long(
        self, error: Exception, asked: Collection[str], longest_seconds: float
    ) -> None:
        """Break off the runs that wait for people, and those whose tools need longer than this.

        `asked` names the sessions that wait for people.
        """
        await _broken_off(_long(self._dispatchers, asked, longest_seconds), error)

    def kept_long(self, asked: Collection[str], longest_seconds: float) -> set[str]:
        """Return the sessions of the kept runs that wait in this way."""
        return {each.scope.session for each in _long(self._kept, asked, longest_seconds)}


def _long(
    dispatchers: Iterable[Dispatcher], asked: Collection[str], longest_seconds: float
) -> list[Dispatcher]:
    return [
        each
        for each in dispatchers
        if each.in_flight
        and (each.scope.session in asked or each.expected_seconds_left() > longest_seconds)
    ]


async def _broken_off(dispatchers: Iterable[Dispatcher], error: Exception) -> None:
    await asyncio.gather(*(each.break_off(error) for each in dispatchers))
