"""The handlings of InferCept's breakdown (Fig. 4) that come before the whole: steps, not systems.

They are known by name only in a process that runs `simulate_step`.
"""

from collections.abc import Sequence

from caesura.intercept.kv.handling import HANDLINGS, oldest_largest_first
from caesura.intercept.kv.views import Decision, PausedKVView, StepView
from caesura.simulator.results import RunResult
from caesura.simulator.study.plan import Cell
from caesura.simulator.study.work import Progress, simulate_cell

SHORT = frozenset(("math", "qa", "ve"))
"""The tools that the paper calls automated or short-running (section 2)."""


class BudgetedSwap:
    """Swaps what the link carries beside the step, and discards the rest (sections 4.1 and 5.2).

    "Discarding once the limit is reached": the budget goes to the calls in the order in which they
    were made. Neither the waste nor the length of a pause is looked at.
    """

    name = "budgeted-swap"
    write_behind = False
    every_step = True
    kept: frozenset[str] = frozenset()

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Decide for all that wait for a tool, but for those whose tools are `kept`."""
        decisions = []
        link, host = step.link_blocks, step.host_free
        for one in sorted(paused, key=lambda one: (-one.elapsed, one.key)):
            if not one.resident or one.returned or one.tool in self.kept:
                continue
            share = min(one.uncopied, link, host)
            link, host = link - share, host - share
            swaps = step.swap_pays and (share > 0 or not one.uncopied)
            decisions.append(Decision(one.key, "swap" if swaps else "discard"))
        return decisions

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Choose by elapsed time x context, most first, as the whole InferCept."""
        return oldest_largest_first(paused, needed, forced)


class HeuristicPreserve(BudgetedSwap):
    """Preserves for short-running tools; swaps within the budget, or discards, for the others.

    The paper's heuristic (section 5.2) decides between discard and preserve by the kind of tool.
    Which of them the swap budget goes to it does not say: here to those that would be discarded.
    """

    name = "heuristic-preserve"
    kept = SHORT


STEPS = {"budgeted-swap": BudgetedSwap, "heuristic-preserve": HeuristicPreserve}


def simulate_step(cell: Cell, progress: Progress) -> RunResult:
    """Make the run of a cell whose policy may have a handling of this file."""
    HANDLINGS.update(STEPS)
    return simulate_cell(cell, progress)
