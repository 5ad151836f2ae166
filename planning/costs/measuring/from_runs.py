"""The seconds of loading and stopping that runs have seen, in place of measured ones."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from caesura.planning.costs.measured import MeasuredEngine

Events = Sequence[Mapping[str, Any]]
Engine = tuple[str, int]
"""A model's name in its application, and the devices of an engine."""


@dataclass(slots=True)
class Seen:
    """What runs have seen of one engine: the seconds of each loading and of each stopping."""

    loading: list[float] = field(default_factory=list)
    stopping: list[float] = field(default_factory=list)


def seen_in(runs: Iterable[Events]) -> dict[Engine, Seen]:
    """Return what the events of runs say of their engines.

    A loading on devices on which another engine loaded meanwhile does not count: a plan adds the
    times of engines that share devices.
    """
    found: dict[Engine, Seen] = defaultdict(Seen)
    for events in runs:
        loading: dict[str, Mapping[str, Any]] = {}
        shared: set[str] = set()
        for event in events:
            replica = event.get("replica", "")
            match event.get("event"):
                case "loading":
                    beside = [name for name, one in loading.items() if _meet(one, event)]
                    shared.update([replica, *beside] if beside else [])
                    loading[replica] = event
                case "loaded":
                    if loading.pop(replica, None) is not None and replica not in shared:
                        found[_engine(event)].loading.append(float(event["seconds"]))
                    shared.discard(replica)
                case "evicted" if "seconds" in event:
                    loading.pop(replica, None)
                    found[_engine(event)].stopping.append(float(event["seconds"]))
                case "started":
                    loading, shared = {}, set()
                case _:
                    pass
    return dict(found)


def corrected(measured: MeasuredEngine, seen: Seen) -> MeasuredEngine:
    """Return a measurement with the medians of what runs have seen, as far as they have."""
    changed = {}
    if seen.loading:
        changed["load_seconds"] = round(median(seen.loading), 3)
    if seen.stopping:
        changed["stop_seconds"] = round(median(seen.stopping), 3)
    return measured.model_copy(update=changed)


def _engine(event: Mapping[str, Any]) -> Engine:
    return str(event["model"]), len(event["devices"])


def _meet(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(set(one["devices"]) & set(other["devices"]))
