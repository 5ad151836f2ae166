"""Whose KV cache is given up when somebody needs the blocks.

Preserving costs T_INT · C · M (InferCept, equation 2): the longer a pause will last and the longer
the context, the dearer it is to keep. A pause of unknown length is estimated by the time it has
lasted already, T_INT = t_now - t_call (InferCept, section 4.4), so a tool that has just been called
keeps its blocks and one that hangs gives them up first.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeldKV:
    """KV cache that a paused request holds.

    `blocks` would become free if it were discarded (blocks shared with others do not count),
    `pause_seconds` is how long the pause has lasted.
    """

    request_id: str
    blocks: int
    context_tokens: int
    pause_seconds: float


def waste_preserve(held: HeldKV) -> float:
    """Token-seconds that keeping is expected to waste (InferCept, equation 2, without M)."""
    return held.pause_seconds * held.context_tokens


def choose_victims(held: Iterable[HeldKV], blocks_needed: int) -> list[str]:
    """Return whose KV to discard, most wasteful first, until `blocks_needed` blocks are free.

    Returns everybody that frees anything if that is not enough.
    """
    victims: list[str] = []
    for candidate in sorted(held, key=waste_preserve, reverse=True):
        if blocks_needed <= 0:
            break
        if candidate.blocks > 0:
            victims.append(candidate.request_id)
            blocks_needed -= candidate.blocks
    return victims
