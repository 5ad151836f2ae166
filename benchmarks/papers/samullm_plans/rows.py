"""The rows of SamuLLM's experiments, and what was published of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.papers.samullm_plans.applications import Work, chain, ensemble, mixed, routing

STRATEGIES = (
    "best",
    "greedy",
    "max",
    "min",
    "longest-first",
    "greedy-no-preemption",
    "min-no-preemption",
)

KNOWN = ("best", "greedy", "min")
"""Strategies that are also tried with the lengths of the run known to the plan."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A row of a table: the section's application with its numbers.

    `figure` is where the paper has it, and `small` rows are those of `--small`. `ablation`: without
    preemption and with known lengths, too.
    """

    name: str
    figure: str
    make: Callable[[], Work]
    small: bool = False
    ablation: bool = False


EXPERIMENTS = (
    Experiment("ensemble, 1,000 requests, limit 256", "7a", partial(ensemble, 1000, 256), True),
    Experiment("routing, 6,856 requests", "8", routing, True, ablation=True),
    Experiment(
        "chain summary, 100 documents, 2 evaluations", "11", partial(chain, 100, 2, 900), True
    ),
    Experiment(
        "chain summary, 100 documents, 2 evaluations, limit 100", "11", partial(chain, 100, 2, 100)
    ),
    Experiment("chain summary, 100 documents, 5 evaluations", "11", partial(chain, 100, 5, 900)),
    Experiment("chain summary, 300 documents, 2 evaluations", "11", partial(chain, 300, 2, 900)),
    Experiment("chain summary, 500 documents, 4 evaluations", "11", partial(chain, 500, 4, 900)),
    Experiment("mixed, 100 documents, 5,000 requests", "12", partial(mixed, 100, 5000, 256), True),
    Experiment("ensemble, 1,000 requests, limit 512", "7b", partial(ensemble, 1000, 512)),
    Experiment("ensemble, 3,000 requests, limit 256", "7a", partial(ensemble, 3000, 256)),
    Experiment(
        "mixed, 500 documents, 5,000 requests, limit 512",
        "14",
        partial(mixed, 500, 5000, 512),
        ablation=True,
    ),
    Experiment("mixed, 400 documents, 5,000 requests", "12", partial(mixed, 400, 5000, 256)),
    Experiment("ensemble, 10,000 requests, limit 256", "7a", partial(ensemble, 10_000, 256)),
    Experiment("ensemble, 10,000 requests, limit 512", "7b", partial(ensemble, 10_000, 512)),
)
"""The rows, the quick ones first, so that an interrupted run has some of each kind."""

PUBLISHED = {
    "7a": ("1.1 to 2.4", "1.0 to 1.6"),
    "7b": ("1.1 to 2.4", "1.0 to 1.6"),
    "8": ("1.4 to 1.8", "1.0 to 1.1"),
    "11": ("1.0 to 1.3", "1.0 to 1.4"),
    "12": ("1.2 to 1.4", "1.2 to 1.4"),
    "14": ("—", "1.2 to 1.4"),
}
"""The paper's end-to-end ratios of max- and min-heuristic to its own plans, by figure."""
