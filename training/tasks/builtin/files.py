"""Files that tools make, as their results and the answers name them."""

from __future__ import annotations

import random


def path(rng: random.Random, suffix: str) -> str:
    """Return where a file stands: 24 hexadecimal digits, which the answer has to copy."""
    return f"/artifacts/{rng.randbytes(12).hex()}.{suffix}"


def picture(rng: random.Random, width: int, height: int) -> tuple[str, str]:
    """Return the path of a picture and the result of the tool that made it."""
    where = path(rng, "png")
    return where, f"Saved as {where}: PNG picture, {width} x {height}."


def sound(rng: random.Random) -> tuple[str, str]:
    """Return the path of a sound and the result of the tool that made it."""
    where = path(rng, "wav")
    seconds = rng.randrange(3, 200) / 10
    return where, f"Saved as {where}: WAV sound, {seconds} s."
