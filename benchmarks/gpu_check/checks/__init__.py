"""The checks, in the order in which they run: what must be right first, then what it costs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One check: the module `NAME.py` beside this one has `async def check(scale, seconds)`."""

    title: str
    share: float
    """Its part of the time."""


CHECKS = {
    "machine": Check("Machine and link", 1),
    "exactness": Check("A pause changes no token", 7),
    "first_token": Check("Time to first token at low load", 3),
    "copies": Check("Copies beside compute", 4),
    "long_sessions": Check("Sessions beyond 8,192 tokens", 4),
    "sleeping": Check("Sleep and wake", 2),
    "follow_ups": Check("Coding agents' follow-ups, against vLLM's server", 5),
    "load": Check("Handling under load, against stock vLLM", 9),
}
