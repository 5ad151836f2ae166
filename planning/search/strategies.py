"""Searches by name, and the plan that they find for an application."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from caesura.planning.application.application import Application
from caesura.planning.application.requests import Request
from caesura.planning.plan import Makespan, Plan
from caesura.planning.search.beam import beam
from caesura.planning.search.drafts import Chooser, Draft, complete
from caesura.planning.search.effort import Effort
from caesura.planning.search.follow import Followed, follow
from caesura.planning.search.improve import improved
from caesura.planning.search.memo import Memo
from caesura.planning.search.problem import PlanError, Problem
from caesura.planning.search.reasons import why_not
from caesura.planning.search.rules.greedy import greedy
from caesura.planning.search.rules.heuristics import max_heuristic, min_heuristic
from caesura.planning.search.rules.lists import ByList, longest_first
from caesura.planning.stage_times import Progress, StageSimulator

FINALISTS = 6
"""Plans of `best` that are checked with every draw of output lengths."""

LISTS = 0.5
"""The share of the effort of `best` after which lists are no longer improved."""

Watch = Callable[[float, float], None]
"""Told while a search runs: the part that is done, and the seconds of the best plan so far."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan that was chosen, the next best one and why it lost, and all that were checked.

    Makespans are over all draws of output lengths. `next_best` is None where only one was found.
    `simulated` counts the stages that the search simulated.
    """

    plan: Plan
    next_best: Plan | None
    reason: str
    checked: tuple[Plan, ...]
    simulated: int


def _rule(chooser: Chooser, preempt: bool, problem: Problem, start: Draft) -> Draft:
    return complete(problem, chooser, start, preempt=preempt)


def _longest_first(problem: Problem, start: Draft) -> Draft:
    return complete(problem, ByList(longest_first(problem, start.progress)), start)


RULES: Mapping[str, Callable[[Problem, Draft], Draft]] = {
    "greedy": partial(_rule, greedy, True),
    "greedy-no-preemption": partial(_rule, greedy, False),
    "max": partial(_rule, max_heuristic, True),
    "min": partial(_rule, min_heuristic, True),
    "min-no-preemption": partial(_rule, min_heuristic, False),
    "longest-first": _longest_first,
}
"""Strategies that make one plan."""

STRATEGIES = ("best", *RULES)
"""The names of all strategies; `best` searches, and chooses among what the others find, too."""


def plan_application(
    application: Application,
    requests: Sequence[Request],
    devices: int,
    simulators: Sequence[StageSimulator],
    *,
    strategy: str = "best",
    progress: Progress | None = None,
    effort: Effort | None = None,
    watch: Watch | None = None,
) -> Choice:
    """Return the plan that a strategy finds for what is left of an application.

    Each simulator has one draw of the output lengths. Plans are searched with the first, and those
    found are followed with all of them, as a run follows them. The one with the smallest mean
    makespan is chosen; makespans count from `progress`, where a run may be continued.
    Raises `PlanError` if no plan is possible or the strategy is unknown.
    """
    if strategy not in STRATEGIES:
        raise PlanError(f"unknown strategy {strategy!r}; choose from: {', '.join(STRATEGIES)}")
    if not simulators:
        raise PlanError("a plan needs at least one draw of the output lengths, got none")
    memo = Memo(simulators[0])
    problem = Problem(application, requests, devices, memo)
    start = Draft(progress or Progress())
    effort = effort or Effort()
    if strategy == "best":
        found = _best(problem, start, effort, memo, watch or (lambda part, seconds: None))
    else:
        found = [(strategy, RULES[strategy](problem, start))]
    plans = [draft.plan(name, devices) for name, draft in found]
    ends = {plan: [follow(plan, one, start.progress) for one in simulators] for plan in plans}
    plans.sort(key=lambda plan: _makespan(ends[plan]).mean)
    checked = tuple(replace(plan, makespan=_makespan(ends[plan])) for plan in plans)
    # Plans that a run would carry out alike are one plan.
    different = (place for place, plan in enumerate(plans) if ends[plan] != ends[plans[0]])
    second = next(different, None)
    if second is None:
        return Choice(checked[0], None, "", checked, memo.simulated)
    reason = why_not(checked[0], ends[plans[0]], checked[second], ends[plans[second]])
    return Choice(checked[0], checked[second], reason, checked, memo.simulated)


def _makespan(ends: Sequence[Followed]) -> Makespan:
    seconds = [one.seconds for one in ends]
    return Makespan(sum(seconds) / len(seconds), min(seconds), max(seconds))


def _best(
    problem: Problem, start: Draft, effort: Effort, memo: Memo, watch: Watch
) -> list[tuple[str, Draft]]:
    """Return the plans of all rules, and the shortest that lists and the beam search find."""
    found: list[tuple[str, Draft]] = []
    shortest = float("inf")
    for name, draft in _tried(problem, start, effort, memo):
        found.append((name, draft))
        shortest = min(shortest, draft.progress.seconds)
        watch(effort.share(memo.simulated), shortest - start.progress.seconds)
    kept = {name: draft for name, draft in found if name in RULES}
    distinct = {draft.stages: (name, draft) for name, draft in reversed(found)}
    ranked = sorted(distinct.values(), key=lambda one: one[1].progress.seconds)
    named = [one for one in ranked if one[0] not in RULES][:FINALISTS]
    return [*named, *kept.items()]


def _tried(
    problem: Problem, start: Draft, effort: Effort, memo: Memo
) -> Iterator[tuple[str, Draft]]:
    for name, rule in RULES.items():
        try:
            yield name, rule(problem, start)
        except PlanError:
            if name == "greedy":
                raise
    jobs = longest_first(problem, start.progress)

    def lists_spent() -> bool:
        return effort.share(memo.simulated) >= LISTS

    for pipelined in (True, False):
        _, draft = improved(problem, start, ByList(jobs, pipelined), lists_spent)
        yield "list", draft
    for draft in beam(problem, start, lambda: effort.spent(memo)):
        yield "beam", draft
