"""Words and numbers that fill the sentences: cities, things, made-up names, operands."""

from __future__ import annotations

import random

ZONES = {
    "Paris": "Europe/Paris",
    "London": "Europe/London",
    "Berlin": "Europe/Berlin",
    "Rome": "Europe/Rome",
    "Madrid": "Europe/Madrid",
    "Lisbon": "Europe/Lisbon",
    "Vienna": "Europe/Vienna",
    "Oslo": "Europe/Oslo",
    "Stockholm": "Europe/Stockholm",
    "Helsinki": "Europe/Helsinki",
    "Athens": "Europe/Athens",
    "Warsaw": "Europe/Warsaw",
    "Amsterdam": "Europe/Amsterdam",
    "Zurich": "Europe/Zurich",
    "Moscow": "Europe/Moscow",
    "Istanbul": "Europe/Istanbul",
    "Cairo": "Africa/Cairo",
    "Nairobi": "Africa/Nairobi",
    "Tokyo": "Asia/Tokyo",
    "Seoul": "Asia/Seoul",
    "Shanghai": "Asia/Shanghai",
    "Singapore": "Asia/Singapore",
    "Dubai": "Asia/Dubai",
    "Sydney": "Australia/Sydney",
    "New York": "America/New_York",
    "Chicago": "America/Chicago",
    "Denver": "America/Denver",
    "Los Angeles": "America/Los_Angeles",
    "Toronto": "America/Toronto",
    "Lima": "America/Lima",
    "Barcelona": "Europe/Madrid",
    "Milan": "Europe/Rome",
    "Munich": "Europe/Berlin",
    "Hamburg": "Europe/Berlin",
    "Dublin": "Europe/Dublin",
    "Prague": "Europe/Prague",
    "Brussels": "Europe/Brussels",
    "Copenhagen": "Europe/Copenhagen",
    "Budapest": "Europe/Budapest",
    "San Francisco": "America/Los_Angeles",
    "Boston": "America/New_York",
    "Washington": "America/New_York",
    "Mexico City": "America/Mexico_City",
    "Beijing": "Asia/Shanghai",
    "Hong Kong": "Asia/Hong_Kong",
    "Bangkok": "Asia/Bangkok",
    "Delhi": "Asia/Kolkata",
    "Mumbai": "Asia/Kolkata",
    "Melbourne": "Australia/Melbourne",
    "Japan": "Asia/Tokyo",
    "Germany": "Europe/Berlin",
    "France": "Europe/Paris",
    "Italy": "Europe/Rome",
    "Spain": "Europe/Madrid",
    "England": "Europe/London",
    "India": "Asia/Kolkata",
    "China": "Asia/Shanghai",
}
OTHER_CITIES = (
    "Naples", "Lyon", "Porto", "Ghent", "Basel", "Turin", "Bergen", "Krakow", "Seattle", "Miami",
    "Osaka", "Kyoto", "Nice", "Atlantis", "Houston", "Leeds", "York", "Bonn", "Cologne", "Riga",
    "Lagos", "Quito", "Bogota", "Santiago", "Havana", "Hanoi", "Manila", "Perth", "Cape Town",
    "Geneva",
)  # fmt: skip
# Singular and plural: the user says "7 boxes", the call says "box".
THINGS = {
    "lamp": "lamps", "chair": "chairs", "table": "tables", "book": "books", "pen": "pens",
    "apple": "apples", "pear": "pears", "egg": "eggs", "box": "boxes", "cup": "cups",
    "bottle": "bottles", "ticket": "tickets", "shirt": "shirts", "coin": "coins", "phone": "phones",
    "brush": "brushes", "melon": "melons", "desk": "desks", "clock": "clocks", "stamp": "stamps",
    "bike": "bikes", "cake": "cakes", "shoe": "shoes", "candle": "candles", "watch": "watches",
    "orange": "oranges", "pencil": "pencils", "sock": "socks", "hat": "hats",
    "umbrella": "umbrellas", "notebook": "notebooks", "banana": "bananas", "cookie": "cookies",
    "marble": "marbles", "flower": "flowers", "tile": "tiles", "brick": "bricks", "key": "keys",
    "plate": "plates", "spoon": "spoons", "screw": "screws", "battery": "batteries",
    "card": "cards", "sticker": "stickers",
}  # fmt: skip
CONTAINERS = {
    "box": "boxes", "bag": "bags", "crate": "crates", "carton": "cartons", "pack": "packs",
    "shelf": "shelves", "tray": "trays", "basket": "baskets", "row": "rows", "case": "cases",
    "drawer": "drawers", "bucket": "buckets", "pallet": "pallets", "jar": "jars",
}  # fmt: skip
NAMES = (
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Hugo", "Ida", "Jonas", "Kim",
    "Lena", "Max", "Nina", "Omar", "Paula", "Ravi", "Sara", "Tom", "Uma", "Vera", "Will", "Yuki",
    "Zoe",
)  # fmt: skip
PRICES = ("12", "30", "7", "9.5", "2.25", "149", "1299", "18.99", "0.8", "45")
_ONSETS = (
    *"bcdfghjklmnprstvwz" * 2,
    "br",
    "cr",
    "dr",
    "fl",
    "gl",
    "gr",
    "kl",
    "pl",
    "sh",
    "st",
    "tr",
)
_CODAS = (*"dgklmnprtx", *[""] * 12, "nd", "lt", "rk", "st")


def made_up(rng: random.Random) -> str:
    """Return a pronounceable word of two or three syllables that nobody uses, in lower case.

    Many names in the data are of this kind: the model has to copy, not to remember.
    """
    syllables = [
        rng.choice(_ONSETS) + rng.choice("aeiou") + rng.choice(_CODAS)
        for _ in range(rng.choice((2, 2, 2, 3)))
    ]
    return "".join(syllables)


def city(rng: random.Random) -> str:
    """Return the name of a city, often a made-up one."""
    if rng.random() < 0.4:
        return made_up(rng).capitalize()
    return rng.choice((*ZONES, *OTHER_CITIES))


def zoned_city(rng: random.Random) -> tuple[str, str]:
    """Return a well-known city and its IANA time zone."""
    return rng.choice(list(ZONES.items()))


def thing(rng: random.Random) -> tuple[str, str]:
    """Return the singular and the plural of a countable thing."""
    if rng.random() < 0.35:
        while (word := made_up(rng)).endswith(("s", "x", "sh", "ch")):
            pass
        return word, word + "s"
    return rng.choice(list(THINGS.items()))


def person(rng: random.Random) -> str:
    """Return a first name."""
    return made_up(rng).capitalize() if rng.random() < 0.3 else rng.choice(NAMES)


def integer(rng: random.Random, digits: int | None = None, low: int = 1) -> int:
    """Return an integer whose number of digits, not its value, is drawn evenly."""
    if digits is None:
        digits = rng.choice((1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6))
    start = 10 ** (digits - 1) if digits > 1 else low
    return rng.randrange(start, 10**digits)


def small(rng: random.Random) -> int:
    """Return a count as it occurs in everyday questions: mostly two digits."""
    return integer(rng, rng.choice((1, 1, 2, 2, 2, 3, 3, 4)), low=2)


def price(rng: random.Random) -> str:
    """Return a price as text: an integer or a decimal number."""
    roll = rng.random()
    if roll < 0.2:
        return rng.choice(PRICES)
    if roll < 0.6:
        return str(integer(rng, rng.choice((1, 2, 2, 3, 4))))
    return f"{integer(rng, rng.choice((1, 2, 3)))}.{rng.randrange(1, 100):02d}".rstrip("0")
