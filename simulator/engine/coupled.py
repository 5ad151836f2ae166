"""Several engines on one virtual time: a session of one model may ask another model.

A session that names a `parent` of another engine's workload is a question to its own engine's
model. The parent is paused until the last of its questions is answered, so the latency of one
model is the pause of the other.

The engine whose next step begins first steps next. So each engine knows all that others have sent
before its step begins, as in reality. Engines on one device take turns: a step begins when the
step before it has ended on that device. Each has its own part of the device's memory.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from caesura.simulator.engine.clients import Forecaster, Peers
from caesura.simulator.engine.core import collecting_rarely
from caesura.simulator.engine.run import Member, Prepared, prepare
from caesura.simulator.results import RunResult


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An engine beside others.

    `member` says what it serves on which machine. Engines of the same non-empty `device` take turns
    on it; the KV caches of their machines are parts of its memory. The `forecaster` forecasts the
    calls of its sessions.
    """

    member: Member
    device: str = ""
    forecaster: Forecaster | None = None


class _Line:
    """One engine in the order of steps: when its next step begins, and on which device."""

    def __init__(self, prepared: Prepared, device: str, free_at: dict[str, float]) -> None:
        self.prepared = prepared
        self._device = device
        self._free_at = free_at
        self.stepped = 0

    @property
    def next_at(self) -> float | None:
        """Return when its next step begins; None if it has nothing to do."""
        at = self.prepared.core.next_at
        return at if at is None else max(at, self._free_at.get(self._device, 0.0))

    def step(self, at: float, count: int) -> None:
        """Run its next step at the second `at`; `count` numbers the steps of all engines."""
        core, self.stepped = self.prepared.core, count
        core.step_at(at)
        if self._device and core.now > at:
            self._free_at[self._device] = core.now


def simulate_together(
    neighbours: Mapping[str, Neighbour], *, check: bool = False
) -> dict[str, RunResult]:
    """Run the engines of models, by name, until all sessions have ended; return their results.

    The same arguments give the same results in any process. A question's latency counts in that of
    the session that asked. Raises `ValueError` for sessions that do not fit or whose parents are
    unknown, and `RuntimeError` if an engine makes no progress.
    """
    began = time.perf_counter()
    peers = Peers([one.member.workload for one in neighbours.values()])
    free_at: dict[str, float] = {}
    lines = [
        _Line(
            prepare(one.member, check=check, peers=peers, forecaster=one.forecaster),
            one.device,
            free_at,
        )
        for one in neighbours.values()
    ]
    with collecting_rarely():
        _run(lines)
    for line in lines:
        line.prepared.core.end()
        line.prepared.close()
    seconds = time.perf_counter() - began
    results = [line.prepared.result(None, seconds) for line in lines]
    return dict(zip(neighbours, results, strict=True))


def _run(lines: Sequence[_Line]) -> None:
    """Step the engine whose next step begins first; of several, the one that stepped least lately.

    A step of an engine sends to others only at its end, which is not before the begin of any
    step that was taken earlier.
    """
    count = 0
    while True:
        due = [(at, line.stepped, line) for line in lines if (at := line.next_at) is not None]
        if not due:
            return
        at, _, line = min(due, key=lambda one: one[:2])
        count += 1
        line.step(at, count)
