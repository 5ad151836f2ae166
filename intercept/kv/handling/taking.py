"""Taking blocks from paused requests in a given order; what the simple handlings share."""

from collections.abc import Iterable, Sequence

from caesura.intercept.kv.views import PausedKVView


def take(candidates: Iterable[tuple[str, int]], needed: int) -> tuple[list[tuple[str, int]], int]:
    """Take blocks from (key, most) in order; return what is taken, and how much is lacking.

    A key may come several times, each time with the most that may be taken of it altogether; it
    is answered once, where it came first.
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
    """Return what requests that queue could give, for `take`, the last in the queue first.

    `paused` holds them in the order of their queue. Blocks that lose nothing go before others.
    """
    queue = [one for one in reversed(paused) if one.returned]
    return [(one.key, one.free_to_release) for one in queue] + [
        (one.key, one.resident) for one in queue
    ]


def oldest_largest_first(
    paused: Sequence[PausedKVView], needed: int, forced: bool, only_copied: bool = False
) -> list[tuple[str, int]]:
    """Choose victims by elapsed time x context, most first, as `Handling.victims` asks.

    That is what preserving wastes where T_INT is taken to be the time that has passed (InferCept,
    equation 2 and section 4.4). Requests that have returned give theirs last, and only if `forced`.
    `only_copied`: what has no copy is given only if `forced`.
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
