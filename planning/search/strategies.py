"""Searches by name: the plan that one finds, how much it may do, and why others lost."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean

from caesura.planning.application.application import Application
from caesura.planning.application.requests import Request
from caesura.planning.plan import Makespan, Placement, Plan
from caesura.planning.search.beam import beam
from caesura.planning.search.follow import Followed, follow
from caesura.planning.search.lists import ByList, improved, jobs_of, longest_first, spread
from caesura.planning.search.problem import Chooser, Draft, PlanError, Problem, complete
from caesura.planning.search.samullm import greedy, max_heuristic, min_heuristic
from caesura.planning.stage_times import Progress, StageSimulator, StageTimes

MIN_SHARE = 0.1
"""The smallest part of the lost time that a reason must explain to be named."""


def why_not(
    best: Plan, best_ends: Sequence[Followed], other: Plan, other_ends: Sequence[Followed]
) -> str:
    """Return how much longer the other plan takes on average, and what differs the most."""
    lost = other.makespan.mean - best.makespan.mean
    if lost < 0:
        return (
            f"{other.strategy} takes {-lost:.1f} s less ({-lost / best.makespan.mean:.1%}), but a"
            " plan whose models share devices must gain more"
        )
    if lost == 0:
        return f"{other.strategy} takes as long, {other.makespan.mean:.1f} s"
    return (
        f"{other.strategy} takes {lost:.1f} s longer ({lost / best.makespan.mean:.1%}): "
        f"{_difference(best_ends, other_ends, lost, best.devices)}"
    )


def _difference(
    best: Sequence[Followed], other: Sequence[Followed], lost: float, devices: int
) -> str:
    """Return what explains most of the lost seconds."""
    loading = fmean(one.loading_seconds for one in other) - fmean(
        one.loading_seconds for one in best
    )
    idle = fmean(one.idle_seconds for one in other) - fmean(one.idle_seconds for one in best)
    tail = fmean(one.tail_seconds for one in other) - fmean(one.tail_seconds for one in best)
    parts = [
        (loading / devices, f"it loads models for {loading:.1f} device-seconds more"),
        (idle / devices, f"its devices are without a model for {idle:.1f} s more"),
        (tail, f"its last model runs {tail:.1f} s longer after all others have finished"),
    ]
    share, text = max(parts)
    if share < MIN_SHARE * lost:
        return "its models make less of their devices"
    return text


_Key = tuple[Progress, frozenset[Placement], bool]


class Memo(StageSimulator):
    """The times of another simulator; a stage that is asked for again is not simulated again.

    Progress is told apart by identity, so a search continues from the very `after` of a stage.
    `simulated` is the number of stages that the other simulator was asked for.
    """

    def __init__(self, simulator: StageSimulator) -> None:
        self._simulator = simulator
        self._times: dict[_Key, StageTimes] = {}
        self._unfinished: dict[Progress, Sequence[str]] = {}
        self.simulated = 0

    def valid(self, placement: Placement) -> bool:
        """Return whether the placement fits."""
        return self._simulator.valid(placement)

    def share(self, placements: Sequence[Placement]) -> tuple[Placement, ...]:
        """Return the placements with the memory of the same devices split; empty if too small."""
        return self._simulator.share(placements)

    def unfinished(self, progress: Progress) -> Sequence[str]:
        """Return the models that have requests left."""
        found = self._unfinished.get(progress)
        if found is None:
            found = self._unfinished[progress] = self._simulator.unfinished(progress)
        return found

    def run(
        self, placements: Sequence[Placement], progress: Progress, *, to_the_end: bool = False
    ) -> StageTimes:
        """Return the times of the stage."""
        key = (progress, frozenset(placements), to_the_end)
        found = self._times.get(key)
        if found is None:
            self.simulated += 1
            found = self._simulator.run(placements, progress, to_the_end=to_the_end)
            self._times[key] = found
        return found


MAX_STAGES = 1_500
"""Stages that a search simulates beyond those of the rules, by default."""

MAX_REQUESTS = 20_000_000
"""Requests in these stages, by default: a stage costs about as much time as it has requests."""


@dataclass(slots=True)
class Effort:
    """A bound on the stages that a search simulates, and if wanted on its seconds.

    The rules' plans are always made; the bound is on what is searched beyond them. A search that
    ends by the number of `stages` (0: by `MAX_STAGES` and `MAX_REQUESTS`) is deterministic. One
    that ends by `seconds`, which `clock` counts, depends on the speed of the machine.
    """

    stages: int = 0
    seconds: float = float("inf")
    clock: Callable[[], float] = field(default=lambda: 0.0)
    _begin: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin = self.clock()

    def share(self, simulated: int, requests: int) -> float:
        """Return the part that is used up, at most 1.

        `simulated` counts the stages of an application that has so many `requests`.
        """
        stages = self.stages or max(1, min(MAX_STAGES, MAX_REQUESTS // max(1, requests)))
        elapsed = (self.clock() - self._begin) / self.seconds
        return min(1.0, max(simulated / stages, elapsed))


FINALISTS = 6
"""Plans of `best` that are checked with every draw of output lengths."""

ALIKE = 0.002
"""Plans whose judged makespans differ by at most this share count as equally good."""

SHARING_MARGIN = 0.05
"""What a plan whose models share devices must gain over one without, as a share of its makespan.

On two cores such plans took 4 to 19 % longer, against their estimates, than plans without.
"""

STARTS = 4
"""Lists of placements that `best` improves."""

LISTS = 0.6
"""The share of its effort that goes into lists; the rest goes into the beam search."""

Watch = Callable[[float, float], None]
"""Told while a search runs: the part that is done, and the seconds of the best plan so far."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How a plan is searched: by which strategy, with how much `effort`, and who is told of it.

    `effort` and `watch` concern the strategy `best` alone.
    """

    strategy: str = "best"
    effort: Effort = field(default_factory=Effort)
    watch: Watch = lambda part, seconds: None


DEFAULT_OPTIONS = SearchOptions()


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan that was chosen, the next best one and why it lost, and all that were checked.

    Makespans are over all draws of output lengths. `next_best` is the best of the plans that take
    longer; None if none does. `simulated` counts the stages that the search simulated.
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
    progress: Progress | None = None,
    options: SearchOptions = DEFAULT_OPTIONS,
) -> Choice:
    """Return the plan that a strategy finds for what is left of an application.

    Each simulator has one draw of the output lengths. Plans are searched with the first, and those
    found are followed with all of them, as a run follows them. The one with the smallest mean
    makespan is chosen; one whose models share devices must be shorter by `SHARING_MARGIN`.
    Makespans count from `progress`, where a run may be continued.
    Raises `PlanError` if no plan is possible or the strategy is unknown.
    """
    strategy = options.strategy
    if strategy not in STRATEGIES:
        raise PlanError(f"unknown strategy {strategy!r}; choose from: {', '.join(STRATEGIES)}")
    if not simulators:
        raise PlanError("a plan needs at least one draw of the output lengths, got none")
    memo = Memo(simulators[0])
    problem = Problem(application, requests, devices, memo)
    start = Draft(progress or Progress())
    if strategy == "best":
        found = _best(problem, start, memo, options)
    else:
        found = [(strategy, RULES[strategy](problem, start))]
    plans = [draft.plan(name, devices) for name, draft in found]
    ends = {plan: [follow(plan, one, start.progress) for one in simulators] for plan in plans}
    plans.sort(key=lambda plan: _judged(plan, ends[plan]))
    checked = tuple(replace(plan, makespan=_makespan(ends[plan])) for plan in plans)
    second = _second([_judged(plan, ends[plan]) for plan in plans])
    if second is None:
        return Choice(checked[0], None, "", checked, memo.simulated)
    reason = why_not(checked[0], ends[plans[0]], checked[second], ends[plans[second]])
    return Choice(checked[0], checked[second], reason, checked, memo.simulated)


def _second(judged: Sequence[float]) -> int | None:
    """Return the place of the next best plan: of the first that is not as good as the best."""
    longer = (place for place, one in enumerate(judged) if one > judged[0] * (1 + ALIKE))
    return next(longer, None)


def _judged(plan: Plan, ends: Sequence[Followed]) -> float:
    """Return what plans are ranked by: the mean makespan, with the margin for shared devices."""
    shares = any(one.shares for stage in plan.stages for one in stage.placements)
    return _makespan(ends).mean * (1 + SHARING_MARGIN if shares else 1)


def _makespan(ends: Sequence[Followed]) -> Makespan:
    seconds = [one.seconds for one in ends]
    return Makespan(sum(seconds) / len(seconds), min(seconds), max(seconds))


def _best(
    problem: Problem, start: Draft, memo: Memo, options: SearchOptions
) -> list[tuple[str, Draft]]:
    """Return the plans of all rules, and the shortest that lists and the beam search find."""
    found = _by_rules(problem, start)
    base = memo.simulated

    def share() -> float:
        return options.effort.share(memo.simulated - base, len(problem.requests))

    shortest = min(draft.progress.seconds for _, draft in found)
    searched: list[tuple[str, Draft]] = []
    for name, draft in _searched(problem, start, [draft for _, draft in found], share):
        searched.append((name, draft))
        shortest = min(shortest, draft.progress.seconds)
        options.watch(share(), shortest - start.progress.seconds)
    distinct = {draft.stages: (name, draft) for name, draft in reversed(searched)}
    for _, draft in found:
        distinct.pop(draft.stages, None)
    ranked = sorted(distinct.values(), key=lambda one: one[1].progress.seconds)
    return [*ranked[:FINALISTS], *found]


def _by_rules(problem: Problem, start: Draft) -> list[tuple[str, Draft]]:
    """Return the plans of the rules; raises `PlanError` if none of them makes one."""
    found = []
    error = None
    for name, rule in RULES.items():
        try:
            found.append((name, rule(problem, start)))
        except PlanError as failed:
            error = failed
    if error is not None and not found:
        raise error
    return found


def _searched(
    problem: Problem, start: Draft, found: Sequence[Draft], share: Callable[[], float]
) -> Iterator[tuple[str, Draft]]:
    """Yield the plans of improved lists, and those of a beam search that goes on with the lists."""
    lists = [
        ByList(longest_first(problem, start.progress), pipelined) for pipelined in (True, False)
    ]
    lists += [ByList(jobs_of(draft)) for draft in found]
    if (shared := spread(problem, start.progress)) is not None:
        lists.append(ByList(shared))
    made = []
    for chooser in dict.fromkeys(lists):
        with suppress(PlanError):
            made.append((chooser, complete(problem, chooser, start)))
    made.sort(key=lambda one: one[1].progress.seconds)
    yield from (("list", draft) for _, draft in made)
    better = []
    for number, (chooser, _) in enumerate(made[:STARTS], 1):
        chooser, draft = improved(problem, start, chooser, _until(share, LISTS * number / STARTS))
        better.append((draft.progress.seconds, chooser))
        yield "list", draft
    rules = [chooser for _, chooser in sorted(better, key=lambda one: one[0])[:1]]
    for draft in beam(problem, start, rules, _until(share, 1.0)):
        yield "beam", draft


def _until(share: Callable[[], float], end: float) -> Callable[[], bool]:
    return lambda: share() >= end
