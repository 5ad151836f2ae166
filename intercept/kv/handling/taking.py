"""Choosing blocks of paused requests to release in a given order; the handlings share it."""

from collections.abc import Iterable, Sequence

from caesura.intercept.kv.views import PausedKVView


def take(candidates: Iterable[tuple[str, int]], needed: int) -> tuple[list[tuple[str, int]], int]:
    """Take blocks from (key, limit) pairs in order; return (key, blocks) and the blocks lacking.

    A key may come several times, each time with a limit for its total. The result names it once,
    where it came first.
    """
    taken: dict[str, int] = {}
    for key, most in candidates:
        if needed <= 0:
            break
        before = taken.get(key, 0)
        if most > before:
            share = min(most - before, needed)
            taken[key] = before + share
            needed -= share
    return list(taken.items()), max(0, needed)


def returned_last(paused: Sequence[PausedKVView]) -> list[tuple[str, int]]:
    """Return candidates for `take` among returned requests, the last in the queue first.

    `paused` holds them in queue order. Blocks with a confirmed copy come before all others.
    """
    queue = [one for one in reversed(paused) if one.returned]
    return [(one.key, one.free_to_release) for one in queue] + [
        (one.key, one.resident) for one in queue
    ]


def oldest_largest_first(
    paused: Sequence[PausedKVView], needed: int, forced: bool, only_copied: bool = False
) -> list[tuple[str, int]]:
    """Return victims by elapsed time x context, largest first, as `Handling.victims` defines.

    The product is the waste of preserving with the elapsed time for T_INT (InferCept, equation 2
    and section 4.4). Returned requests come last, and only if `forced`. `only_copied`: uncopied
    blocks are released only if `forced`.
    """
    waiting = [one for one in paused if not one.returned]
    waiting.sort(key=lambda one: (-one.elapsed * one.context_tokens, one.key))
    candidates = [(one.key, one.free_to_release) for one in waiting]
    if forced or not only_copied:
        candidates = [(one.key, one.resident) for one in waiting]
    if forced:
        candidates += returned_last(paused)
    taken, lacking = take(candidates, needed)
    return [] if lacking and not forced else taken
