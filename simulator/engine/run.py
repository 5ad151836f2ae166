"""One simulated run: a workload on a machine under a policy.

The serving scheduler itself decides what is scheduled and which request gets which block. Only time
is simulated: a latency model gives the time of steps, and the link's rate the time of copies. One
step is in flight at a time (no asynchronous scheduling), and scheduling takes no time.
"""

import time
from dataclasses import asdict, dataclass, fields
from typing import Any

import vllm
from vllm.v1.core.sched.scheduler import Scheduler

from caesura.scheduler.settings import Settings
from caesura.scheduler.vllm.engine.scheduler import PausingScheduler
from caesura.simulator.engine.build import build_scheduler
from caesura.simulator.engine.check import port_of
from caesura.simulator.engine.clients import Anew, Clients, Forecaster, Pausing, Peers, Style
from caesura.simulator.engine.clock import Clock
from caesura.simulator.engine.core import IDLE_SECONDS, Core, Progress, collecting_rarely
from caesura.simulator.engine.measure import ForecastRecorder
from caesura.simulator.engine.plan import Plan, plan_for
from caesura.simulator.engine.tokens import Tokens
from caesura.simulator.engine.transfer import Copies, OffloadCopies, SwapCopies
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy
from caesura.simulator.results import RunResult
from caesura.simulator.session import Workload


@dataclass(frozen=True, slots=True)
class Member:
    """A workload on a machine under a policy: what one engine of a run is made from."""

    workload: Workload
    machine: Machine
    policy: Policy


@dataclass(frozen=True, slots=True)
class Prepared:
    """One engine that is ready to run, with its clients."""

    member: Member
    plan: Plan
    scheduler: Scheduler
    clients: Clients
    core: Core
    noted: list[dict[str, Any]]
    forecasts: ForecastRecorder | None
    began: float
    """The real second in which its making began."""

    def run(self, window: float | None = None, progress: Progress | None = None) -> RunResult:
        """Run to the end of all sessions, or cut off after `window` simulated seconds.

        Raises `RuntimeError` for a scheduler that makes no progress.
        """
        with collecting_rarely():
            self.core.run(window, progress)
        self.close()
        return self.result(window, time.perf_counter() - self.began)

    def close(self) -> None:
        """Write the last records, and stop the scheduler."""
        if isinstance(self.scheduler, PausingScheduler):
            self.scheduler.parts.recorder.flush()
        self.scheduler.shutdown()

    def result(self, window: float | None, wall_seconds: float) -> RunResult:
        """Return the results of the run, which has ended."""
        workload, machine, policy = self.member.workload, self.member.machine, self.member.policy
        return RunResult(
            policy=policy.name,
            workload=workload.name,
            machine=machine.name,
            rate=rate_of(workload),
            seed=workload.seed,
            sessions=self.clients.results(),
            totals=self.core.meter.totals,
            timeline=self.core.meter.timeline(),
            records=self.noted,
            settings=describe(workload, machine, policy, self.plan, window),
            wall_seconds=wall_seconds,
            predictions=[] if self.forecasts is None else self.forecasts.accuracies(),
        )


def prepare(
    member: Member,
    *,
    clock: Clock | None = None,
    records: bool = False,
    predictions: bool = False,
    check: bool = False,
    peers: Peers | None = None,
    forecaster: Forecaster | None = None,
) -> Prepared:
    """Return an engine that is ready to run from second 0.0 on.

    It sets the `clock`; others may read it, such as a latency model that changes with time.
    `records` collects the records of Caesura's scheduler, and `predictions` compares its forecasts
    with the workload; records leave no place for predictions. `check` checks the scheduler's
    invariants often, which is slow. `peers` are the clients of engines that run side by side, to
    which this one's are added. The `forecaster` forecasts each call when it begins.

    Raises `ValueError` for unknown settings and for sessions that do not fit.
    """
    began = time.perf_counter()
    clock = Clock() if clock is None else clock
    clock.now = 0.0
    workload, machine, policy = member.workload, member.machine, member.policy
    tokens = Tokens(workload)
    plan = plan_for(workload, machine, policy)
    noted: list[dict[str, Any]] = []
    outbox = noted if records else None
    forecasts = ForecastRecorder(clock, workload) if predictions and not records else None
    truth = {session.key: session for session in workload.sessions}.get
    scheduler = build_scheduler(plan, policy, clock, truth, tokens, outbox, forecasts)
    style = style_of(policy, tokens)
    clients = Clients(workload, tokens, style, scheduler, plan, peers, forecaster)
    copies = copies_of(scheduler, machine, plan, policy, clients)
    core = Core(scheduler, clients, copies, machine, clock, check)
    return Prepared(member, plan, scheduler, clients, core, noted, forecasts, began)


def simulate(
    workload: Workload,
    machine: Machine,
    policy: Policy,
    *,
    window: float | None = None,
    records: bool = False,
    progress: Progress | None = None,
    check: bool = False,
) -> RunResult:
    """Run a workload and return its results.

    The same arguments give the same result in any process. After `window` simulated seconds the run
    is cut off; None: all sessions end. `records` collects the records of Caesura's scheduler.
    `check` checks the scheduler's invariants often, which is slow. `prepare` makes engines that
    measure or share more.

    Raises `ValueError` for unknown settings and for sessions that do not fit, and `RuntimeError`
    for a scheduler that makes no progress.
    """
    member = Member(workload, machine, policy)
    return prepare(member, records=records, check=check).run(window, progress)


def style_of(policy: Policy, tokens: Tokens) -> Style:
    """Return how the clients of a policy request segments."""
    return Pausing(tokens, policy.names_parents) if policy.engine == "caesura" else Anew()


def copies_of(
    scheduler: Scheduler, machine: Machine, plan: Plan, policy: Policy, clients: Clients
) -> Copies | None:
    """Return the workers' copies; None without a connector."""
    port = port_of(scheduler)
    if port.connector is None:
        return None
    if policy.engine == "stock-offload":
        return OffloadCopies(machine, plan.layout, policy, clients.live)
    return SwapCopies(machine, plan.layout, policy, clients.live, port)


def describe(
    workload: Workload, machine: Machine, policy: Policy, plan: Plan, window: float | None
) -> dict[str, Any]:
    """Return the inputs that determine a run, besides its sessions and its seed.

    All settings are there, with the defaults too.
    """
    settings = asdict(Settings.from_mapping(policy.settings)) if policy.engine == "caesura" else {}
    cost = plan.cost.to_wire()
    return {
        "policy": {
            **_plain(policy),
            "settings": settings,
            "fleet": None if policy.fleet is None else asdict(policy.fleet),
        },
        "machine": {
            **_plain(machine),
            "latency": machine.latency.name,
            "cost": cost,
            "layers": [asdict(some) for some in machine.layers],
        },
        "workload": {
            "name": workload.name,
            "about": workload.about,
            "sessions": len(workload.sessions),
            "clients": workload.clients,
        },
        "window": window,
        "vllm": vllm.__version__,
        "model_tokens": plan.model_tokens,
        "blocks": plan.blocks,
        "block_bytes": plan.layout.block_bytes,
        "kv_groups": plan.layout.groups.told(),
        "host_blocks": plan.host_blocks,
        "idle_seconds": IDLE_SECONDS,
        "asynchronous": False,
    }


def _plain(record: Machine | Policy) -> dict[str, Any]:
    return {item.name: getattr(record, item.name) for item in fields(record)}


def rate_of(workload: Workload) -> float:
    """Return the mean number of arrivals per second; 0.0 in a closed loop."""
    sessions = workload.sessions
    if workload.clients or not sessions or sessions[-1].arrival <= 0:
        return 0.0
    return len(sessions) / sessions[-1].arrival
