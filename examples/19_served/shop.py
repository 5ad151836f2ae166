"""The functions of a shop, which caesura.toml names as tools."""

PRICES = {"lamp": 24, "chair": 59}
STOCK = {"lamp": 7, "chair": 0}


def price(item: str) -> int:
    """Look up what an item costs, in euros.

    Args:
        item: lamp or chair.
    """
    return PRICES[item]


async def stock(item: str) -> int:
    """Count the pieces of an item in the store.

    Args:
        item: lamp or chair.
    """
    return STOCK[item]
