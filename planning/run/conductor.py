"""Carrying a plan out: stage after stage, as models finish in their own order."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from caesura.planning.application.application import Application
from caesura.planning.application.requests import Request
from caesura.planning.plan import Placement, Plan
from caesura.planning.run.client import Client
from caesura.planning.run.dispatch import (
    Ask,
    Dispatcher,
    Failed,
    LoadFailed,
    ModelFinished,
    Notice,
    Questions,
    ReplicaLost,
    Settled,
    Work,
)
from caesura.planning.run.fleet import Fleet, Seat
from caesura.planning.run.host import EngineHost, Limits
from caesura.planning.run.journal import Journal, OutputError, RunError
from caesura.planning.search.devices import Slots, assign, mapped, places_left, renumbered
from caesura.planning.search.follow import Turn, first_turn, next_turn
from caesura.planning.stage_times import Progress

MAX_LOSSES = 3
"""How many engines of a model may end before the run gives up, unless requests finish between."""

Replan = Callable[[Progress, int], Plan]
"""Makes a plan for what is left, on a number of devices."""
Better = Callable[[Plan, Turn, Progress], Plan | None]
"""Returns a better plan for what is left than to go on with one from a turn, or None."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a run is to do: an application's requests, what each asks, and plans for what is left.

    `replan` makes a plan for the devices that are left, if one goes away. `better` is asked for
    another plan when none of the models that a stage should have finished has.
    """

    application: Application
    requests: Sequence[Request]
    questions: Questions
    replan: Replan
    better: Better | None = None


class Conductor:
    """Runs the stages of a plan until all requests are done.

    A stage ends when its first model has finished (SamuLLM, section 3). What runs then is chosen by
    `next_turn`, and where by `assign`. An engine that ends is started again.
    """

    def __init__(
        self,
        job: Job,
        plan: Plan,
        host: EngineHost,
        journal: Journal,
        ask: Ask,
        limits: Limits,
    ) -> None:
        self._job = job
        self._plan = plan
        self._host = host
        self._journal = journal
        self._work = work = Work(job.requests, journal.done)
        self._notices: asyncio.Queue[Notice] = asyncio.Queue()
        self._dispatcher = Dispatcher(
            work,
            journal,
            ask,
            job.questions,
            self._notices.put_nowait,
            max_in_flight=limits.max_in_flight,
        )
        self._fleet = Fleet(
            host,
            self._dispatcher,
            journal,
            self._notices.put_nowait,
            drain_seconds=limits.drain_seconds,
            watch_seconds=limits.watch_seconds,
        )
        self._usable = tuple(range(plan.devices))
        self._placed: dict[Placement, Slots] = {}
        self._left: dict[Placement, Slots] = {}
        """Where engines were that were evicted: they may sleep there."""
        self._losses: Counter[str] = Counter()
        self._left_at_loss: dict[str, int] = {}

    async def run(self) -> None:
        """Return once every request has a result.

        Raises `RunError` if a model can't be loaded, or if its engines end again and again.
        """
        work = self._work
        self._dispatcher.start()
        self._fleet.start()
        await self._settle()
        await self._plan_without_lost_devices()
        turn = first_turn(self._plan, work.unfinished) if work.unfinished else None
        while turn is not None and work.unfinished:
            await self._enter(turn)
            plan, finished = self._plan, await self._until_end(turn)
            if not work.unfinished:
                return
            if self._plan is not plan:
                turn = first_turn(self._plan, work.unfinished)
                continue
            following = next_turn(self._plan, turn, work.unfinished, finished)
            if not finished and following.placements == turn.placements:
                raise RunError(
                    f"stage {turn.stage + 1} of the plan can't go on: its models"
                    f" ({_names(turn.placements)}) wait for models that it does not place"
                )
            expected = self._plan.stages[turn.stage].finishes
            turn = following
            if finished and expected and not set(finished) & set(expected):
                why = f"{', '.join(finished)} finished before {', '.join(expected)}"
                turn = await self._reconsidered(turn, why)

    @property
    def done(self) -> int:
        """The number of requests that have a result."""
        return len(self._work.done)

    async def close(self) -> None:
        """Stop sending, keep the results under way, and stop all engines."""
        await self._dispatcher.close()
        await self._fleet.close()

    async def _reconsidered(self, turn: Turn, why: str) -> Turn:
        """Return the first turn of a better plan than to go on with `turn`, or that turn.

        `why` says what did not go as planned.
        """
        if self._job.better is None:
            return turn
        found = await asyncio.to_thread(self._job.better, self._plan, turn, self._progress())
        if found is None:
            return turn
        await self._change(found, why)
        return first_turn(found, self._work.unfinished)

    async def _change(self, plan: Plan, why: str) -> None:
        """Go by another plan from now on, for a reason that is kept."""
        self._plan = plan
        placed = [{"placement": asdict(one), "slots": list(s)} for one, s in self._placed.items()]
        await self._journal.event(
            "replanned",
            strategy=plan.strategy,
            reason=why,
            plan=asdict(plan),
            usable=list(self._usable),
            placed=placed,
        )

    async def _settle(self) -> None:
        """Wait until the requests that former runs have made impossible are written."""
        while self._dispatcher.busy:
            await self._next_notice()

    async def _enter(self, turn: Turn) -> None:
        """Begin to place a turn's models on devices."""
        placed = self._assign(turn.placements)
        self._left = places_left(self._placed, placed, self._left)
        self._placed = placed
        await self._journal.event(
            "stage",
            stage=turn.stage,
            placements=[
                {"model": one.model, "replicas": one.replicas, "tp": one.tensor_parallel}
                for one in turn.placements
            ],
        )
        self._fleet.become(
            [
                Seat(self._job.application.model(one.model), slot, one.kv_bytes)
                for one, slots in self._placed.items()
                for slot in slots
            ]
        )

    def _assign(self, placements: Sequence[Placement]) -> dict[Placement, Slots]:
        """Return the devices of each replica; devices that have gone away are left out."""
        number = {device: n for n, device in enumerate(self._usable)}
        now, left = renumbered(self._placed, number), renumbered(self._left, number)
        found = assign(placements, now, len(self._usable), asleep=left)
        back = dict(enumerate(self._usable))
        return {one: tuple(mapped(slot, back) for slot in slots) for one, slots in found.items()}

    async def _until_end(self, turn: Turn) -> tuple[str, ...]:
        """Return the models that ended the turn; none if it can't go on, or the plan is new."""
        models = {one.model for one in turn.placements}
        plan = self._plan
        while self._can_go_on(models):
            match await self._next_notice():
                case ModelFinished(model):
                    return self._finished(model)
                case ReplicaLost(replica, reason):
                    await self._restore(replica, reason)
                    if self._plan is not plan:
                        return ()
                case Settled():
                    pass
        return ()

    def _can_go_on(self, models: set[str]) -> bool:
        work = self._work
        notices = self._notices
        return (
            not notices.empty()
            or self._dispatcher.busy
            or any(work.ready(model) for model in models)
        )

    def _finished(self, model: str) -> tuple[str, ...]:
        """Return the model and those that have finished with it."""
        models, others = [model], []
        while not self._notices.empty():
            notice = self._notices.get_nowait()
            if isinstance(notice, ModelFinished):
                models.append(notice.model)
            else:
                others.append(notice)
        for notice in others:
            self._notices.put_nowait(notice)
        return tuple(models)

    async def _next_notice(self) -> Notice:
        """Return the next notice; raise what ends the run."""
        match await self._notices.get():
            case Failed(error):
                raise error
            case LoadFailed(replica, reason):
                if len(await self._still_usable()) == len(self._usable):
                    raise RunError(f"{replica} can't be loaded: {reason}")
                return ReplicaLost(replica, reason)
            case notice:
                return notice

    async def _restore(self, replica: str, reason: str) -> None:
        """Load a lost engine again, or plan anew without its devices.

        Raises `RunError` once too many engines of the model have ended.
        """
        model = self._fleet.model_of(replica)
        seat = await self._fleet.lose(replica, reason)
        if seat is None:
            return
        left = self._work.left(model)
        again = self._left_at_loss.get(model) == left
        self._left_at_loss[model] = left
        self._losses[model] = 1 + (self._losses[model] if again else 0)
        if self._losses[model] >= MAX_LOSSES:
            raise RunError(
                f"{MAX_LOSSES} engines of {model} have ended without finishing a request, the last"
                f" one, {replica}, since {reason}"
            )
        if not await self._plan_without_lost_devices():
            self._fleet.become([*self._fleet.seats, seat])

    async def _plan_without_lost_devices(self) -> bool:
        """Make a plan for the devices that are left; return False if none has gone away."""
        usable = await self._still_usable()
        if len(usable) == len(self._usable):
            return False
        if not usable:
            raise RunError(
                f"no device is left of {self._plan.devices}: the machines of the run have gone away"
            )
        gone = sorted(set(self._usable) - set(usable))
        self._usable = usable
        await self._journal.event("devices", usable=list(usable))
        found = await asyncio.to_thread(self._job.replan, self._progress(), len(usable))
        devices = "devices" if len(gone) > 1 else "device"
        await self._change(found, f"{devices} {', '.join(map(str, gone))} went away")
        return True

    async def _still_usable(self) -> tuple[int, ...]:
        there = await self._host.usable()
        return tuple(device for device in self._usable if device in there)

    def _progress(self) -> Progress:
        finished = {key: result.begun + result.seconds for key, result in self._work.done.items()}
        loaded, evicted = self._there(self._placed), self._there(self._left)
        return Progress(self._journal.seconds, finished, loaded, evicted)

    def _there(self, places: Mapping[Placement, Slots]) -> tuple[Placement, ...]:
        """Return the placements with as many replicas as are on devices that are left."""
        left = renumbered(places, {device: device for device in self._usable})
        return tuple(replace(one, replicas=len(slots)) for one, slots in left.items())


def _names(placements: Sequence[Placement]) -> str:
    return ", ".join(one.model for one in placements)


async def carry_out(
    job: Job, plan: Plan, host: EngineHost, journal: Journal, limits: Limits | None = None
) -> None:
    """Run a plan until every request has a result in the journal.

    The engines are stopped at the end, whatever ends the run. Raises `RunError` if it can't go on,
    as with a full disk or an engine that ends again and again; what was done is kept.
    """
    client = Client()
    conductor = Conductor(job, plan, host, journal, client.ask, limits or Limits())
    outcome = "stopped"
    journal.start(strategy=plan.strategy, devices=plan.devices, plan=asdict(plan))
    async with client:
        try:
            await conductor.run()
            outcome = "finished"
        finally:
            await conductor.close()
            with suppress(OutputError):
                await journal.event(outcome, done=conductor.done)
