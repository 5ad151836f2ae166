"""The default handling: keep all KV, copy it while the link is idle, evict only on demand.

A call itself triggers nothing. Write-behind copies (`offload_order.copy_order`) let most blocks be
released without loss: a resume loads them over the link. What remains to decide is which blocks to
release when a request needs them, and when to release none.

A released block frees memory for the rest of its pause. Its return costs time of the link or of
the engine, and in that time the whole memory could have been at work. So releasing pays if the
pause lasts longer than it takes to bring back all that the memory holds. That time is
`turnover_seconds` for blocks with a copy and `recompute_turnover_seconds` for the others. Blocks
without a copy need not be released while their copies are on the way.
"""

from collections.abc import Sequence

from caesura.intercept.kv.handling.taking import returned_last, take
from caesura.intercept.kv.offload_order import turnover_seconds
from caesura.intercept.kv.views import Decision, PausedKVView, StepView

MAX_TURNOVERS = 20.0
"""In recompute turnovers: shorter pauses keep uncopied blocks while copies proceed."""
BACKLOG_SECONDS = 0.8  # link seconds of uncopied KV beyond which copies will come too late
SHORTEST = 1e-6  # seconds; all shorter pauses count as equally short


def recompute_turnover_seconds(step: StepView) -> float:
    """Return the seconds that the engine needs to recompute all KV that its memory can hold."""
    return step.cost.prefill_seconds_per_token * step.total_blocks * step.block_size


class Caesura:
    """Evicts on demand: copied blocks of long pauses first, uncopied and short ones last."""

    name = "caesura"
    write_behind = True
    every_step = False

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Return no decisions: all KV is kept."""
        return []

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Return the blocks to release, in order of least regret.

        To admit a request, only blocks that pay to release count, and none are released if they
        do not suffice. For a running request, copied blocks of short pauses follow, then uncopied
        blocks. Last come the blocks of returned requests, the last in the queue first.
        """
        if needed <= 0:
            return []
        waiting = [one for one in paused if one.resident and not one.returned]
        waiting.sort(key=lambda one: (-one.remaining, one.key))
        order = _worth_taking(waiting, step)
        taken, lacking = take(order, needed)
        if not lacking:
            return taken
        if not forced:
            return []
        by_regret = sorted(waiting, key=lambda one: (_regret(one), one.key))
        order += [(one.key, one.free_to_release) for one in waiting]
        order += [(one.key, one.resident) for one in by_regret]
        return take(order + returned_last(paused), needed)[0]


def _worth_taking(waiting: Sequence[PausedKVView], step: StepView) -> list[tuple[str, int]]:
    """Return candidates for `take`: the blocks that pay to release, copied ones first.

    `waiting` are the paused requests by expected remaining time, longest first.
    """
    short = turnover_seconds(step)
    recompute = recompute_turnover_seconds(step)
    late = _copies_are_late(waiting, step, recompute)
    copied = [(one.key, one.free_to_release) for one in waiting if one.remaining > short]
    rest = []
    for one in waiting:
        hopeless = late or one.uncopied > step.host_free
        if one.remaining > (recompute if hopeless else MAX_TURNOVERS * recompute):
            rest.append((one.key, one.resident))
    return copied + rest


def _copies_are_late(waiting: Sequence[PausedKVView], step: StepView, recompute: float) -> bool:
    """Return whether the link is too far behind for uncopied blocks to wait for a copy."""
    if not step.swap_pays:
        return True
    backlog = sum(one.uncopied for one in waiting if one.durations.mean > recompute / 4)
    return step.cost.swap_seconds(backlog * step.block_size, "out") > BACKLOG_SECONDS


def _regret(paused: PausedKVView) -> float:
    """Return, up to a factor, the expected cost of releasing blocks without a confirmed copy.

    The cost is the share of blocks to recompute times the rate at which the tool returns. That
    rate is the reciprocal of the expected remaining time.
    """
    blocks = paused.resident - paused.free_to_release
    return min(1.0, paused.uncopied / max(blocks, 1)) / max(paused.remaining, SHORTEST)
