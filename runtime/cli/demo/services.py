"""Made-up services of the demo, with the delay of remote services."""

import asyncio
import random

from caesura.tools import tool
from caesura.tools.errors import ToolError

PRICES = {"lamp": 34, "chair": 59, "book": 12, "pen": 2, "table": 140}
POPULATIONS = {"oslo": 717710, "paris": 2102650, "rome": 2748109, "berlin": 3755251}
SKIES = ("clear sky", "light rain", "cloudy", "sunny")


async def _far_away(low: float = 0.3, high: float = 1.2) -> None:
    """Wait as long as a remote service may take; the answers are made up."""
    await asyncio.sleep(random.uniform(low, high))


@tool
async def weather(city: str) -> str:
    """Tell the weather in a city."""
    await _far_away()
    if city.lower() == "atlantis":
        raise ToolError(f"unknown city {city}")
    seed = random.Random(city)
    return f"{seed.randint(2, 29)} degrees, {seed.choice(SKIES)}"


@tool
async def price(item: str) -> int:
    """Look up the price of an item."""
    await _far_away()
    if item.lower() not in PRICES:
        raise ToolError(f"unknown item {item}")
    return PRICES[item.lower()]


@tool
async def population(city: str) -> int:
    """Look up how many people live in a city."""
    await _far_away()
    if city.lower() not in POPULATIONS:
        raise ToolError(f"unknown city {city}")
    return POPULATIONS[city.lower()]
