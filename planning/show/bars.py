"""Which model holds which device when: bars of a plan, and of the run that carried it out."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from caesura.planning.plan import Placement, Plan
from caesura.planning.search.devices import Slots, assign, places_left

Kind = Literal["loading", "running", "lost"]


@dataclass(frozen=True, slots=True)
class Bar:
    """A model on a device from `begin` to `end`, in seconds of the run.

    While it is `loading` it answers no request; a bar is `lost` if its engine ended by itself.
    Bars of a plan know how many replicas the model has, and the devices of each.
    """

    device: int
    model: str
    begin: float
    end: float
    kind: Kind = "running"
    text: str = ""
    replicas: int = 0
    tensor_parallel: int = 0


def _no_time(placement: Placement) -> float:
    return 0.0


def plan_bars(
    plan: Plan,
    load_seconds: Callable[[Placement], float] = _no_time,
    loaded: Mapping[Placement, Slots] | None = None,
) -> list[Bar]:
    """Return the bars of a plan, with devices assigned as a run assigns them.

    A model whose placement stays on its devices over several stages is one bar. Models that share
    devices are all loaded when the time of each has passed. What is `loaded` when the plan begins
    goes on where it is.
    """
    now = dict(loaded or {})
    left: dict[Placement, Slots] = {}
    began = {_Engine(one, slot): (0.0, 0.0) for one, slots in now.items() for slot in slots}
    bars: list[Bar] = []
    at = 0.0
    for stage in plan.stages:
        before, now = now, assign(stage.placements, now, plan.devices, asleep=left)
        left = places_left(before, now, left)
        placed = {_Engine(one, slot) for one, slots in now.items() for slot in slots}
        for gone in sorted(began.keys() - placed):
            bars += gone.bars(*began.pop(gone), at)
        new = sorted(placed - began.keys())
        for one in new:
            together = {each.placement for each in new if each.shares_with(one)}
            began[one] = at, at + sum(map(load_seconds, together))
        at += stage.seconds
    for one, (begin, ready) in began.items():
        bars += one.bars(begin, ready, at)
    return sorted(bars, key=lambda bar: (bar.device, bar.begin))


@dataclass(frozen=True, slots=True, order=True)
class _Engine:
    """One replica on its devices. Two are equal if one can go on as the other."""

    placement: Placement = field(compare=False)
    devices: tuple[int, ...]
    model: str = field(init=False)
    kv_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", self.placement.model)
        object.__setattr__(self, "kv_bytes", self.placement.kv_bytes)

    def shares_with(self, other: "_Engine") -> bool:
        """Return whether both are of one placement, or share devices."""
        same = self.placement == other.placement
        return same or self.placement.shares == other.placement.shares != ""

    def bars(self, begin: float, loaded: float, end: float) -> Iterator[Bar]:
        """Yield its bars on each of its devices: loading, then running."""
        loaded = min(end, loaded)
        parallel = self.placement.replicas, self.placement.tensor_parallel
        text = f"tensor parallel {self.placement.tensor_parallel}"
        for device in self.devices:
            if loaded > begin:
                yield Bar(device, self.model, begin, loaded, "loading", text, *parallel)
            if end > loaded:
                yield Bar(device, self.model, loaded, end, "running", text, *parallel)


def run_bars(events: Iterable[Mapping[str, Any]]) -> list[Bar]:
    """Return the bars of the last run in the events of a run's journal."""
    bars: list[Bar] = []
    open_: dict[str, tuple[Mapping[str, Any], Kind]] = {}
    last = 0.0

    def close(replica: str, end: float, kind: Kind | None = None) -> None:
        event, held = open_.pop(replica)
        for device in event["devices"]:
            bars.append(Bar(device, event["model"], event["at"], end, kind or held, replica))

    for event in events:
        name, replica = event.get("event"), str(event.get("replica", ""))
        if name == "started":
            bars, open_, last = [], {}, 0.0
            continue
        last = max(last, float(event.get("at", 0.0)))
        if replica in open_ and name in ("loaded", "not loaded", "evicted", "lost"):
            close(replica, last, "lost" if name == "lost" else None)
        if name in ("loading", "loaded"):
            open_[replica] = event, "loading" if name == "loading" else "running"
    for replica in list(open_):
        close(replica, last)
    return sorted(bars, key=lambda bar: (bar.device, bar.begin))
