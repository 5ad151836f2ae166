"""Timing how long an engine takes to fall asleep and to wake up, by vLLM's routes."""

from collections.abc import Callable
from statistics import fmean

import aiohttp

from caesura.planning.costs.measured import MeasuredSleep
from caesura.planning.run.backends.sleep import LEVELS
from caesura.planning.run.backends.sleep_routes import SleepRoutes
from caesura.planning.run.host import Endpoint

REPEATS = 2


async def measure_sleeps(
    endpoint: Endpoint, clock: Callable[[], float]
) -> tuple[MeasuredSleep, ...]:
    """Return the mean seconds of falling asleep and of waking up, at each level.

    Raises `HostError` for a server without the routes, and for one that does not wake up.
    """
    found = []
    async with aiohttp.ClientSession() as http:
        routes = SleepRoutes(http, endpoint)
        for level in LEVELS:
            sleeps, wakes = [], []
            for _ in range(REPEATS):
                began = clock()
                await routes.sleep(level)
                slept = clock()
                await routes.wake_up(level)
                sleeps.append(slept - began)
                wakes.append(clock() - slept)
            found.append(
                MeasuredSleep(
                    level=level,
                    sleep_seconds=round(fmean(sleeps), 3),
                    wake_seconds=round(fmean(wakes), 3),
                )
            )
    return tuple(found)
