"""The default: keep everything, copy it while the link is idle, evict only on demand.

Nothing happens at a call. Copies are made behind (`offload_order.copy_order`), so that most blocks
lose nothing when they are taken: they come back over the link. Everything is then a
question of whose blocks to take when somebody needs them, and of when to take none.

A block that is taken frees memory for the rest of its pause. Its way back costs time of the link or
of the engine, in which all memory could have done something. So taking it pays if the pause lasts
longer than the way back of as much as the memory holds: `turnover_seconds` for a block with a copy,
`recompute_turnover_seconds` for one without, of which there is no need to take any as long as
copies are on their way.
"""

from collections.abc import Sequence

from caesura.intercept.kv.handling.taking import returned_last, take
from caesura.intercept.kv.offload_order import turnover_seconds
from caesura.intercept.kv.views import Decision, PausedKVView, StepView

PATIENCE = 20.0  # recompute turnovers that a block without a copy is kept for while copies proceed
BACKLOG_SECONDS = 0.8  # of the link: with more left to copy, copies will be too late
SHORTEST = 1e-6  # seconds; below it one pause is as short as another


def recompute_turnover_seconds(step: StepView) -> float:
    """Return how long the engine would recompute all that its memory holds."""
    return step.cost.prefill_seconds_per_token * step.total_blocks * step.block_size


class Caesura:
    """Evicts on demand: what is copied and long away first, what is short or not copied last."""

    name = "caesura"
    write_behind = True
    every_step = False

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Keep everything."""
        return []

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Choose blocks by least regret.

        To admit a request, only what pays to take, and nothing if that is not enough. For a
        running request, further what is copied of short pauses, then what is not copied, and at
        last what requests hold that have returned and queue, in the order of `paused`.
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
    """Return the blocks that pay to take, for `take`, those with copies before those without.

    `waiting` are the paused by how long they will last on, longest first.
    """
    short = turnover_seconds(step)
    recompute = recompute_turnover_seconds(step)
    late = _copies_are_late(waiting, step, recompute)
    copied = [(one.key, one.free_to_release) for one in waiting if one.remaining > short]
    rest = []
    for one in waiting:
        hopeless = late or one.uncopied > step.host_free
        if one.remaining > (recompute if hopeless else PATIENCE * recompute):
            rest.append((one.key, one.resident))
    return copied + rest


def _copies_are_late(waiting: Sequence[PausedKVView], step: StepView, recompute: float) -> bool:
    """Whether blocks without a copy had better not wait for one: the link is far behind."""
    if not step.swap_pays:
        return True
    backlog = sum(one.uncopied for one in waiting if one.durations.mean > recompute / 4)
    return step.cost.swap_seconds(backlog * step.block_size, "out") > BACKLOG_SECONDS


def _regret(paused: PausedKVView) -> float:
    """Return, up to a factor, what taking a block without a confirmed copy is expected to cost.

    It is the share of blocks that would be recomputed times the chance that the tool returns soon,
    for which the reciprocal of the expected rest is the rate.
    """
    blocks = paused.resident - paused.free_to_release
    return min(1.0, paused.uncopied / max(blocks, 1)) / max(paused.remaining, SHORTEST)
