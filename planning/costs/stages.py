"""The times of stages (`StageSimulator`), from one draw of output lengths."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from hashlib import blake2b

import numpy as np

from caesura.planning.application.requests import Request, asked_by, with_asked
from caesura.planning.costs.cluster import Edges, Part, Pool, Replica, Simulate, run_component
from caesura.planning.costs.engine import EngineCosts, Flops
from caesura.planning.costs.work import Array, Finished, Indices, Placed, Run, Work, finish_times
from caesura.planning.plan import Placement
from caesura.planning.stage_times import Progress, StageTimes, engine_like, evicted_after


def split(engines: Sequence[EngineCosts], placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """Return the placements with a `kv_bytes` each, on devices that they share.

    Each gets the KV cache of one longest request, and the same part of what is left in bytes. One
    whose size the model's arguments set gets just that. Empty if the devices do not hold this, or
    if such a size is too small. The name of the shared devices lists the models.
    """
    least = [engine.kv_given if engine.kv_fixed else _least(engine) for engine in engines]
    weights = sum(engine.weight_bytes for engine in engines)
    left = min(engine.room for engine in engines) - weights - sum(least)
    small = any(kv < _least(engine) for kv, engine in zip(least, engines, strict=True))
    if left < 0 or small:
        return ()
    name = "+".join(sorted(one.model for one in placements))
    more = int(left // max(1, sum(not engine.kv_fixed for engine in engines)))
    return tuple(
        replace(one, kv_bytes=bytes_ + (0 if engine.kv_fixed else more), shares=name)
        for one, bytes_, engine in zip(placements, least, engines, strict=True)
    )


def _least(engine: EngineCosts) -> int:
    """Return the bytes of one longest request, in whole blocks."""
    blocks = -(-engine.longest // engine.block_tokens)
    return blocks * engine.block_tokens * engine.kv_bytes


def components(
    models: Sequence[str], needs: Iterable[tuple[str, str]], shares: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the models in groups, each group behind those that it needs (topological order).

    `needs` are (source, target) pairs: the target waits for the source. Models of a group need each
    other, or share devices: `shares` names those of each model, or is empty. Needs of
    models that are not in `models` do not count.
    """
    place = {model: number for number, model in enumerate(models)}
    reach = [[i == j for j in range(len(models))] for i in range(len(models))]
    for source, target in needs:
        if source in place and target in place:
            reach[place[source]][place[target]] = True
    for i, name in enumerate(shares):
        for j, other in enumerate(shares):
            if name and name == other:
                reach[i][j] = True
    for middle in range(len(models)):
        for i in range(len(models)):
            if reach[i][middle]:
                reach[i] = [a or b for a, b in zip(reach[i], reach[middle], strict=True)]
    group_of = [
        min(j for j in range(len(models)) if reach[i][j] and reach[j][i])
        for i in range(len(models))
    ]
    graph = {
        group: {group_of[i] for i in range(len(models)) if reach[i][group] and group_of[i] != group}
        for group in group_of
    }
    return [
        tuple(models[i] for i in range(len(models)) if group_of[i] == group)
        for group in TopologicalSorter(graph).static_order()
    ]


Engines = Callable[[str, int], EngineCosts | None]
"""Returns the costs of a model's engine at a tensor-parallel size; None if it cannot run so."""

Ready = Mapping[str, tuple[float, ...]]
"""The seconds until each replica of a model is loaded, ascending."""

MAX_RUNS = 20_000
"""The number of simulated components that are kept; the oldest go first."""


class FastStages:
    """A stage simulator that jumps over steps in which no batch changes.

    `lengths` are the output tokens of the requests by key, and `engines` the costs of the models'
    engines. Data-parallel replicas take the requests of one queue, the one with the fewest in
    flight first, as a run does. Where only the number of a model's replicas changes, those that it
    has stay loaded, as in a run. Models that share devices are slowed down by each other. A model
    that needs others of its stage is simulated behind them, or with them if they need each other.
    A model that keeps its placement continues its requests, if the progress is one of this
    simulator's own; where nothing changes for it, what was simulated of it holds on. What was
    simulated is kept, so that a search asks for a stage at little cost.
    """

    def __init__(
        self,
        models: Sequence[str],
        requests: Sequence[Request],
        lengths: Mapping[str, int],
        engines: Engines,
        simulate: Simulate = run_component,
    ) -> None:
        """`models` are in the order of the application. Raises `ValueError` without a length."""
        self._work = Work(models, requests, lengths)
        self._engines = engines
        self._asked = asked_by(requests)
        self._simulate_part = simulate
        self._runs: dict[bytes, Run] = {}
        self.simulated = 0

    def valid(self, placement: Placement) -> bool:
        """Return whether devices hold the weights and the KV cache of one longest request."""
        engine = self._engines(placement.model, placement.tensor_parallel)
        return engine is not None and engine.valid(placement)

    def fits(self, placements: Sequence[Placement]) -> bool:
        """Return whether each placement is valid, and devices hold all models that share them."""
        if not all(self.valid(placement) for placement in placements):
            return False
        shared: dict[str, list[Placement]] = {}
        for placement in placements:
            if placement.shares:
                shared.setdefault(placement.shares, []).append(placement)
        return all(self._fit_together(group) for group in shared.values())

    def share(self, placements: Sequence[Placement]) -> tuple[Placement, ...]:
        """Return the placements with the memory of the same devices split; empty if too small."""
        engines = [self._engines(one.model, one.tensor_parallel) for one in placements]
        known = [engine for engine in engines if engine is not None]
        return split(known, placements) if len(known) == len(engines) else ()

    def unfinished(self, progress: Progress) -> Sequence[str]:
        """Return the models that have requests left, or that such models ask, in their order."""
        left = self._work.model_of[~np.isfinite(finish_times(self._work, progress.finished))]
        counts = np.bincount(left, minlength=len(self._work.models))
        own = (model for model, count in zip(self._work.models, counts, strict=True) if count)
        needed = with_asked(own, self._asked)
        return [model for model in self._work.models if model in needed]

    def run(
        self, placements: Sequence[Placement], progress: Progress, *, to_the_end: bool = False
    ) -> StageTimes:
        """Return the times of a stage that begins with `progress`.

        Raises `ValueError` for a model that is placed twice, for a placement that is not valid, and
        for models that do not fit on the devices that they share.
        """
        self._check(placements)
        at = finish_times(self._work, progress.finished)
        ready = self._ready(placements, progress)
        decoded = self._carried(placements, progress)
        parts = self._simulate(placements, at, decoded, ready, progress)
        ends, last = self._ends(parts, at)
        done = {model: end for model, end in ends.items() if end < np.inf}
        if last is None:
            return StageTimes(progress, 0.0, {}, 0.0)
        end = last if to_the_end or not done else min(done.values())
        still = {model: tuple(max(0.0, one - end) for one in each) for model, each in ready.items()}
        finished = Finished(self._work, at, parts, progress.seconds, end, still)
        flops = self._flops(placements)
        computed = sum(part.flops(self._work, end, flops) for part in parts)
        times = {model: progress.seconds + each for model, each in done.items() if each <= end}
        evicted = evicted_after(progress, placements)
        after = Progress(progress.seconds + end, finished, tuple(placements), evicted)
        loading = {model: min(*each, end) for model, each in ready.items() if min(each)}
        return StageTimes(after, end, times, computed, loading)

    def _check(self, placements: Sequence[Placement]) -> None:
        models = [placement.model for placement in placements]
        twice = [model for model in models if models.count(model) > 1]
        if twice:
            raise ValueError(f"model {twice[0]} is placed twice in a stage")
        if not self.fits(placements):
            shown = ", ".join(map(str, placements))
            raise ValueError(f"devices do not hold the weights and a longest request of: {shown}")

    def _fit_together(self, placements: Sequence[Placement]) -> bool:
        engines = [self._engine(each) for each in placements]
        held = sum(e.held(p) for e, p in zip(engines, placements, strict=True))
        return held <= max(engine.room for engine in engines)

    def _engine(self, placement: Placement) -> EngineCosts:
        engine = self._engines(placement.model, placement.tensor_parallel)
        assert engine is not None
        return engine

    def _flops(self, placements: Sequence[Placement]) -> dict[int, Flops]:
        return {self._work.models.index(p.model): self._engine(p).flops for p in placements}

    def _ends(self, parts: Sequence[Placed], at: Array) -> tuple[dict[str, float], float | None]:
        """Return when models have finished, and the last end of a request; None without one."""
        ends: dict[str, float] = {}
        last: float | None = None
        for part in parts:
            left = ~np.isfinite(at[part.run.numbers])
            end = part.run.end[left] + part.base
            models = self._work.model_of[part.run.numbers[left]]
            for place in np.unique(models).tolist():
                ends[self._work.models[place]] = float(end[models == place].max())
            reached = end[np.isfinite(end)]
            if len(reached):
                last = max(last or 0.0, float(reached.max()))
        return ends, last

    def _left(self, model: str, at: Array) -> Indices:
        numbers = self._work.of(model)
        left: Indices = numbers[~np.isfinite(at[numbers])]
        return left

    def _carried(self, placements: Sequence[Placement], progress: Progress) -> Array:
        """Return the tokens (n,) that requests of engines which stay loaded have decoded."""
        kept = np.zeros(len(self._work))
        finished = progress.finished
        if isinstance(finished, Finished) and finished.work is self._work:
            for placement in placements:
                old = _continued_by(placement, progress)
                if old is not None:
                    numbers = self._work.of(placement.model)
                    # Replicas have equal parts of the requests; those of leaving ones begin again.
                    stay = np.arange(len(numbers)) % old.replicas < placement.replicas
                    kept[numbers] = np.where(stay, finished.decoded[numbers], 0.0)
        return kept

    def _ready(self, placements: Sequence[Placement], progress: Progress) -> Ready:
        """Return the seconds until the replicas are loaded, behind the stopping of evicted ones."""
        stay = {each: _continued_by(each, progress) for each in placements}
        kept = {old: each for each, old in stay.items() if old is not None}
        evicted = [
            old for old in progress.loaded if old not in kept or kept[old].replicas < old.replicas
        ]
        stopping = max((self._engine(each).leave_seconds for each in evicted), default=0.0)
        loading = progress.finished.loading if isinstance(progress.finished, Finished) else {}
        new = [each for each, old in stay.items() if old is None or old.replicas < each.replicas]
        loads = {each.model: self._engine(each).load_seconds for each in new}
        wakes = {
            each.model: wake
            for each in new
            if (wake := self._engine(each).wake_seconds) is not None and _asleep(each, progress)
        }
        least = loads | wakes
        # Models that share devices also share the time in which they are loaded.
        together = {
            each.model: sum(least[one.model] for one in new if one.shares == each.shares)
            for each in new
            if each.shares
        }
        loads |= together
        wakes |= {model: seconds for model, seconds in together.items() if model in wakes}
        ready: dict[str, tuple[float, ...]] = {}
        for each, old in stay.items():
            had = loading.get(each.model, (0.0,) * old.replicas) if old is not None else ()
            had = had[: each.replicas]
            fresh = stopping + loads.get(each.model, 0.0)
            missing = each.replicas - len(had)
            asleep = min(missing, _asleep(each, progress)) if each.model in wakes else 0
            woken = (stopping + wakes.get(each.model, 0.0),) * asleep
            ready[each.model] = tuple(sorted((*had, *woken, *(fresh,) * (missing - asleep))))
        return ready

    def _simulate(
        self,
        placements: Sequence[Placement],
        at: Array,
        decoded: Array,
        ready: Ready,
        progress: Progress,
    ) -> list[Placed]:
        """Return the runs of the stage's components, in the order of their needs."""
        work = self._work
        waits = ~np.isfinite(at[work.targets]) & ~np.isfinite(at[work.sources])
        edges = work.sources[waits], work.targets[waits]
        between = np.unique(np.stack([work.model_of[each] for each in edges], axis=1), axis=0)
        pairs = [(work.models[a], work.models[b]) for a, b in between.tolist()]
        placed = {placement.model: placement for placement in placements}
        ends = np.full(len(work) if len(edges[0]) else 0, np.inf)
        parts: list[Placed] = []
        before = _parts_before(work, progress)
        changed: set[str] = set(placed) ^ {one.model for part in before for one in part.placements}
        for names in components(list(placed), pairs, [p.shares for p in placements]):
            group = tuple(placed[name] for name in names)
            sources = {source for source, target in pairs if target in names} - set(names)
            if not changed & sources and (part := self._continued(group, before, at, progress)):
                parts.append(part)
                if len(ends):
                    ends[part.run.numbers] = part.run.end + part.base
                continue
            changed |= set(names)
            numbers = np.concatenate([self._left(name, at) for name in names])
            base = min(min(ready[name]) for name in names)
            starts = [tuple(one - base for one in ready[name]) for name in names]
            arrivals = np.zeros(len(numbers))
            inside = (np.empty(0, np.int64), np.empty(0, np.int64))
            if len(ends):
                arrivals, inside = self._arrivals(numbers, edges, ends, base)
            run = self._component(
                group,
                starts,
                (numbers, arrivals, decoded[numbers]),
                inside,
            )
            parts.append(Placed(run, base, group))
            if len(ends):
                ends[run.numbers] = run.end + base
        return parts

    def _continued(
        self,
        group: tuple[Placement, ...],
        before: Sequence[Placed],
        at: Array,
        progress: Progress,
    ) -> Placed | None:
        """Return the run of a component that only goes on; None if its models have changed."""
        for part in before:
            if set(group) <= set(part.placements):
                others = (one.model for one in part.placements if one not in group)
                if any(len(self._left(name, at)) for name in others):
                    return None
                assert isinstance(progress.finished, Finished)
                return Placed(part.run, part.base - progress.finished.end, group)
        return None

    def _arrivals(
        self, numbers: Indices, edges: Edges, ends: Array, base: float
    ) -> tuple[Array, Edges]:
        """Return when what others give to requests is there (k,), and the needs among them."""
        sources, targets = edges
        ours = np.zeros(len(self._work), np.bool_)
        ours[numbers] = True
        outside = ours[targets] & ~ours[sources]
        arrivals = np.zeros(len(self._work))
        np.maximum.at(arrivals, targets[outside], ends[sources[outside]] - base)
        inside = ours[targets] & ours[sources]
        return arrivals[numbers], (sources[inside], targets[inside])

    def _component(
        self,
        placements: Sequence[Placement],
        starts: Sequence[tuple[float, ...]],
        requests: Part,
        edges: Edges,
    ) -> Run:
        """Return the run of models that are simulated together; the kept one if there is one."""
        numbers, _, decoded = requests
        digest = blake2b(repr((placements, starts)).encode(), digest_size=16)
        for part in requests:
            digest.update(part.tobytes())
        key = digest.digest()
        if key not in self._runs:
            if len(self._runs) >= MAX_RUNS:
                del self._runs[next(iter(self._runs))]
            pools = [
                self._pool(placement, each, numbers, decoded)
                for placement, each in zip(placements, starts, strict=True)
            ]
            self._runs[key] = self._simulate_part(self._work, pools, requests, edges)
            self.simulated += 1
        return self._runs[key]

    def _pool(
        self, placement: Placement, starts: Sequence[float], numbers: Indices, decoded: Array
    ) -> Pool:
        engine, work = self._engine(placement), self._work
        begun = decoded > 0
        resident = dict(zip(numbers[begun].tolist(), map(int, decoded[begun]), strict=True))
        tokens = engine.kv_tokens(placement)
        replicas = tuple(
            Replica(engine, tokens, work.prompt_list, work.output_list, resident, start)
            for start in starts
        )
        return Pool(placement.model, engine, tokens, replicas, placement.shares)


def _continued_by(placement: Placement, progress: Progress) -> Placement | None:
    """Return the loaded placement whose replicas can be those of another; None without one."""
    for old in progress.loaded:
        if replace(old, replicas=placement.replicas, shares=placement.shares) == placement:
            return old
    return None


def _asleep(placement: Placement, progress: Progress) -> int:
    """Return how many engines were evicted that replicas of a placement can be, woken up."""
    like = engine_like(placement)
    return sum(old.replicas for old in progress.evicted if engine_like(old) == like)


def _parts_before(work: Work, progress: Progress) -> Sequence[Placed]:
    """Return the runs of the stage before, if the progress is one of this simulator's own."""
    finished = progress.finished
    if not isinstance(finished, Finished) or finished.work is not work:
        return []
    return [part for part in finished.parts if set(part.placements) & set(progress.loaded)]
