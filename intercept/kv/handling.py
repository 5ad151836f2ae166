"""The handlings: policies that decide about a request's KV cache while its tool runs.

`caesura` is the default. The others are baselines from papers, or have one action for every pause,
which is the best choice for some traffic.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import exp, inf
from typing import NamedTuple

from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.pause_durations import Durations
from caesura.intercept.kv.step_budget import turnover_seconds
from caesura.intercept.kv.views import Action, Decision, Handling, PausedKVView, Prices, StepView
from caesura.intercept.kv.waste import (
    least_waste,
    prices,
    prices_for,
    waste_discard,
    waste_preserve,
    waste_swap,
)


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


# -- one action for every pause --------------------------------------------------------------------


class _Fixed:
    """Applies `action` to every pause; kept KV is evicted on demand, oldest and largest first."""

    action: Action = "preserve"
    write_behind = False
    every_step = True

    @property
    def name(self) -> str:
        """Return the action's name."""
        return self.action

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Return `action` for all requests that hold blocks and still wait for their tool."""
        if self.action == "preserve" or (self.action == "swap" and not step.swap_pays):
            return []
        return [
            Decision(one.key, self.action) for one in paused if one.resident and not one.returned
        ]

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Return the blocks to release, by elapsed time x context, largest first."""
        return oldest_largest_first(paused, needed, forced)


class Preserve(_Fixed):
    """Keeps all KV until a request needs the blocks."""

    action: Action = "preserve"
    every_step = False


class Discard(_Fixed):
    """Releases all KV at once; a resume recomputes what the prefix cache has lost."""

    action: Action = "discard"


class Swap(_Fixed):
    """Copies all KV to the host and releases it; preserves if swapping does not pay."""

    action: Action = "swap"


# -- InferCept -------------------------------------------------------------------------------------


def pause_seconds(paused: PausedKVView) -> float:
    """Return T_INT, the expected remaining pause: as long as it has lasted so far.

    That is the paper's estimate for tools that are unknown or vary (section 4.4). Here it serves
    all tools. A profile that predicts a long pause from the start would discard at once what
    exceeds the first step's link budget, although the next step could copy it.
    """
    return paused.elapsed


class InferCept:
    """The action of least waste, chosen at every step (sections 4.1 to 4.4).

    Paused requests are sorted by their waste without swapping, min(equation 2, equation 4). The
    link's budget goes to those with the largest waste, since swaps within it are free. The others
    preserve or discard, whichever wastes less.
    """

    name = "infercept"
    write_behind = False
    every_step = True

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Return decisions for requests that wait for a tool; preserved ones are left out."""
        ranked: list[tuple[float, str, PausedKVView, Prices, float]] = []
        for one in paused:
            seconds = pause_seconds(one)
            if one.resident and not one.returned and seconds > 0:
                price = prices_for(one, step, seconds)
                waste = least_waste(price.preserve, price.discard)
                ranked.append((-waste, one.key, one, price, seconds))
        ranked.sort(key=lambda entry: entry[:2])
        decisions = []
        link, host = step.link_blocks, step.host_free
        for _, key, one, price, seconds in ranked:
            share = min(one.uncopied, link, host)
            if (share or not one.uncopied) and _worth_a_swap(one, step, seconds):
                decisions.append(Decision(key, "swap"))
                link -= share
                host -= share
            elif price.discard < price.preserve:
                decisions.append(Decision(key, "discard"))
        return decisions

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Return the blocks to release, by elapsed time x context, largest first.

        Admission may take only copied blocks, since `decide` found the others worth their memory.
        """
        return oldest_largest_first(paused, needed, forced, only_copied=True)


def _worth_a_swap(paused: PausedKVView, step: StepView, seconds: float) -> bool:
    """Return whether the pause outlasts the copies out and in; otherwise no memory is gained."""
    if not step.swap_pays:
        return False
    out_seconds = step.cost.swap_seconds(step.tokens(paused.uncopied), "out")
    in_seconds = step.cost.swap_seconds(step.tokens(paused.resident), "in")
    return seconds > out_seconds + in_seconds


# -- LAMPS -----------------------------------------------------------------------------------------


def forward_seconds(tokens: int, context_tokens: int, cost: CostModel) -> float:
    """Return T_fwd, the seconds of a step that computes only `tokens` of one context."""
    return cost.step_seconds(tokens, context_tokens) if tokens > 0 else 0.0


def wastes(
    context_tokens: int,
    pause_seconds: float,
    other_tokens: float,
    swap_pays: bool,
    cost: CostModel,
    fixed_tokens: float = 0.0,
) -> Prices:
    """Return the waste of each action at a call, in token-seconds (InferCept, equations 1 to 3).

    The context has C tokens at the call and the pause lasts T_INT seconds. Other requests in the
    batch have C_other tokens, and C_batch is both together. A swap that does not pay has infinite
    waste. `fixed_tokens` is the memory of windows and states, in tokens of full attention.
    """
    context, other = context_tokens, other_tokens
    held = context + fixed_tokens
    swap = inf
    if swap_pays:
        out_seconds = cost.swap_seconds(held, "out")
        swap = waste_swap(out_seconds, cost.swap_seconds(held, "in"), held + other)
    return Prices(
        preserve=waste_preserve(pause_seconds, held),
        discard=waste_discard(forward_seconds(context, context, cost), held, other),
        swap=swap,
    )


def least(prices: Prices) -> Action:
    """Return the action of least waste; a tie goes to preserve, then to discard."""
    if prices.preserve <= min(prices.discard, prices.swap):
        return "preserve"
    return "discard" if prices.discard <= prices.swap else "swap"


class Lamps:
    """One action per pause, as if chosen before it: the least expected waste (section 4.2).

    The action is the least of InferCept's equations 1 to 3 (the paper's numbering differs). A
    discarded context is recomputed in one step, and a swap makes the whole batch wait. T_INT is
    the mean of the tool's pauses, however long this pause has lasted.

    The paper estimates the context of the batch beforehand. Here the batch is assumed to fill the
    memory, so that the action stays the same through the pause. Only then does a handling matter.
    """

    name = "lamps"
    write_behind = False
    every_step = True

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Return decisions for requests that wait for a tool; preserved ones are left out."""
        decisions = []
        for one in paused:
            if one.resident and not one.returned:
                price = _whole_pause(one, step)
                action = least(price)
                if action != "preserve":
                    decisions.append(Decision(one.key, action))
        return decisions

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Return the blocks to release, by elapsed time x context, largest first.

        Admission may take only copied blocks, since `decide` found the others worth their memory.
        """
        return oldest_largest_first(paused, needed, forced, only_copied=True)


def _whole_pause(paused: PausedKVView, step: StepView) -> Prices:
    """Return the waste of each action in block-seconds, from values constant through a pause."""
    context, memory = paused.context_tokens, step.tokens(step.total_blocks)
    fixed = step.tokens(step.groups.fixed(context / step.block_size))
    other = max(0.0, memory - context - fixed)
    waste = wastes(context, paused.durations.mean, other, step.swap_pays, step.cost, fixed)
    size = step.tokens(1)
    return Prices(waste.preserve / size, waste.discard / size, waste.swap / size)


# -- time to live ----------------------------------------------------------------------------------

MAX_MEANS = 3.0
"""The largest tau as a multiple of the mean pause, unless a longer pause was observed."""


class BestTime(NamedTuple):
    """The best tau by ratio: `times[i]` seconds from a ratio of `ratios[i]` on."""

    ratios: tuple[float, ...]
    times: tuple[float, ...]

    def at(self, ratio: float) -> float:
        """Return the best tau in seconds for `ratio`, in block-seconds of recomputing per block."""
        return self.times[bisect_right(self.ratios, ratio) - 1]


@lru_cache(maxsize=256)
def best_times(durations: Durations) -> BestTime:
    """Return the best tau for every ratio; candidates are 0, all observed pauses, and one more."""
    lines = [(0.0, 0.0, 0.0), *_lines(durations)]
    hull: list[tuple[float, float, float]] = []
    starts: list[float] = []
    for line in lines:  # slopes ascend; each line is the highest from `start` on
        start = 0.0
        while hull:
            gain = line[0] - hull[-1][0]
            start = (hull[-1][1] - line[1]) / gain if gain > 0 else inf
            if start > starts[-1]:
                break
            hull.pop()
            starts.pop()
            start = 0.0
        if start < inf:
            hull.append(line)
            starts.append(start)
    return BestTime(tuple(starts), tuple(line[2] for line in hull))


def _lines(durations: Durations) -> list[tuple[float, float, float]]:
    """Return (P(T <= tau), -E[min(T, tau)], tau) for each candidate tau."""
    taus, tail = list(durations.sample), durations.tail_mean
    if not taus or taus[-1] < MAX_MEANS * tail:
        taus.append(MAX_MEANS * tail)
    lines, shorter_seconds = [], 0.0
    whole = durations.count + durations.prior_weight
    for index, tau in enumerate(taus):
        held = shorter_seconds + (durations.count - index) * tau
        held += durations.prior_weight * tail * (1 - exp(-tau / tail))
        lines.append((1 - durations.survival(tau), -held / whole, tau))
        shorter_seconds += tau
    return lines


class TimeToLive:
    """Keeps a paused KV cache for a time that depends on its tool, then discards it.

    Agent serving systems such as Continuum pin the KV cache of a tool call for a time to live.
    Here that time, tau, is the one of greatest value. A tool that returns before tau saves the
    recomputation. The memory is held until the tool returns or tau has passed.

        value(tau) = P(T < tau) · (block-seconds of recomputing) - E[min(T, tau)] · blocks

    Divided by the blocks, the value is linear in the ratio (recomputing : blocks). So a tool's
    best tau is a step function of that ratio: the upper hull of the lines, computed once per tool.
    """

    name = "ttl"
    write_behind = False
    every_step = True

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Return a discard for each request whose time to live is over."""
        decisions = []
        by_tool: dict[int, BestTime] = {}  # many requests wait for the same tool
        for one in paused:
            if one.resident and not one.returned:
                tool = id(one.durations)
                best = by_tool.get(tool) or by_tool.setdefault(tool, best_times(one.durations))
                price = prices(one, step)
                if one.elapsed > best.at(price.discard / one.resident):
                    decisions.append(Decision(one.key, "discard"))
        return decisions

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Return the blocks to release, by elapsed time x context, largest first."""
        return oldest_largest_first(paused, needed, forced)


# -- Caesura ---------------------------------------------------------------------------------------

MAX_TURNOVERS = 20.0
"""In recompute turnovers: shorter pauses keep uncopied blocks while copies proceed."""
BACKLOG_SECONDS = 0.8  # link seconds of uncopied KV beyond which copies will come too late
SHORTEST = 1e-6  # seconds; all shorter pauses count as equally short


def recompute_turnover_seconds(step: StepView) -> float:
    """Return the seconds that the engine needs to recompute all KV that its memory can hold."""
    seconds = step.cost.prefill_seconds_per_token * step.total_blocks * step.block_size
    return seconds / max(1, step.groups.growing)


class Caesura:
    """The default: keep all KV, copy it while the link is idle, evict only on demand.

    A call itself triggers nothing. Write-behind copies (`step_budget.copy_order`) let most blocks
    be released without loss: a resume loads them over the link. What remains to decide is which
    blocks to release when a request needs them, and when to release none. Copied blocks of long
    pauses go first, uncopied and short ones last.

    A released block frees memory for the rest of its pause. Its return costs time of the link or
    of the engine, and in that time the whole memory could have been at work. So releasing pays if
    the pause lasts longer than it takes to bring back all that the memory holds. That time is
    `turnover_seconds` for blocks with a copy and `recompute_turnover_seconds` for the others.
    Blocks without a copy need not be released while their copies are on the way.
    """

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
    return step.cost.swap_seconds(step.tokens(backlog), "out") > BACKLOG_SECONDS


def _regret(paused: PausedKVView) -> float:
    """Return, up to a factor, the expected cost of releasing blocks without a confirmed copy.

    The cost is the share of blocks to recompute times the rate at which the tool returns. That
    rate is the reciprocal of the expected remaining time.
    """
    blocks = paused.resident - paused.free_to_release
    return min(1.0, paused.uncopied / max(blocks, 1)) / max(paused.remaining, SHORTEST)


DEFAULT_HANDLING = "caesura"

HANDLINGS: dict[str, Callable[[], Handling]] = {
    "caesura": Caesura,
    "infercept": InferCept,
    "lamps": Lamps,
    "ttl": TimeToLive,
    "preserve": Preserve,
    "discard": Discard,
    "swap": Swap,
}


def make_handling(name: str) -> Handling:
    """Return the handling of this name; raises `ValueError` that lists the names."""
    make = HANDLINGS.get(name)
    if make is None:
        raise ValueError(f"unknown handling {name!r}; choose from: {', '.join(HANDLINGS)}")
    return make()
