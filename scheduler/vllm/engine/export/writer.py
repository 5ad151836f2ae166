"""The recorder: it makes records of pauses, forecasts, request states and steps, and writes them.

A pause has one record at its begin, with what each alternative is expected to cost, and one at its
end, with what it did cost. A forecast is what predictors expect of a session when it is queued. A
record of steps has a column per field and many steps. `request_states` makes the records of
requests. All records leave the engine with the connector's statistics (`exporter`).
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from math import inf
from typing import Any, NamedTuple

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.kv.pressure import Charge
from caesura.intercept.kv.views import PausedKVView, Prices, StepView
from caesura.intercept.kv.waste import Came, account, prices
from caesura.intercept.pause_hints import PERSON
from caesura.scheduler.predict.facts import Facts
from caesura.scheduler.predict.forecast import About, Forecast
from caesura.scheduler.records import (
    DecisionRow,
    FeatureRecord,
    ForecastRecord,
    OpeningInputs,
    OpeningRecord,
    PauseRecord,
    PredictionRecord,
    PriceRecord,
    Record,
    RestRecord,
    SessionRecord,
    StepsRecord,
)
from caesura.scheduler.records.outcomes import FEW_CALLS
from caesura.scheduler.vllm.engine.export.request_states import BlockDemand, RequestStates, Wanted
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedCounts
from caesura.scheduler.vllm.engine.port import EngineState, StepWork
from caesura.scheduler.vllm.engine.port.requests import outcome_of
from caesura.scheduler.vllm.engine.sessions.recorder import Lack, Recorder
from caesura.scheduler.vllm.engine.sessions.served import Opening, PausedKV, Release, SessionState
from caesura.scheduler.vllm.engine.swap.planner import SwapPlanner

DIGITS = 4
"""The number of decimals that are kept, which makes records short."""


SHARES = (0.1, 0.5, 0.9)
"""The quantiles that are recorded of a distribution."""


def open_account(
    kv: PausedKV,
    view: PausedKVView,
    step: StepView,
    at: float,
    handling: str,
    charge: Charge,
    block_bytes: int,
) -> Opening:
    """Return the state at the begin of a pause, at the wall time `at`, with its record.

    A block has `block_bytes` bytes, 0 if that is not known.
    """
    told = kv.session.segment()
    record = OpeningRecord(
        request=kv.key,
        at=at,
        session=told["session"],
        tool=kv.tool,
        person=kv.tool is not None and kv.tool.startswith(PERSON),
        context_tokens=kv.context_tokens,
        blocks=view.resident,
        bytes=view.resident * block_bytes if block_bytes else None,
        predicted_seconds=view.remaining,
        deadline_seconds=None if kv.pause is None else kv.pause.deadline_seconds,
        handling=handling,
        prices=_priced(prices(view, step)),
        inputs=_inputs(view, step),
    )
    return Opening(view, step, told, record, charge)


def _inputs(view: PausedKVView, step: StepView) -> OpeningInputs:
    return OpeningInputs(
        elapsed=view.elapsed,
        remaining=view.remaining,
        resident=view.resident,
        free_to_release=view.free_to_release,
        uncopied=view.uncopied,
        hosted=view.hosted,
        missing=view.missing,
        recomputed=view.recomputed,
        block_size=step.block_size,
        total_blocks=step.total_blocks,
        free_blocks=step.free_blocks,
        host_free=step.host_free,
        running_tokens=step.running_tokens,
        running_context=step.running_context,
        link_blocks=step.link_blocks,
        swap_pays=step.swap_pays,
        step_seconds=step.cost.step_seconds(step.running_tokens, step.running_context),
    )


def pause_record(
    kv: PausedKV, opening: Opening, report: ResumeReport | None, now: float, wanted: Wanted
) -> PauseRecord:
    """Return the record of a finished pause; `report` is None if its request never resumed.

    `wanted` are the requests that lacked blocks meanwhile.
    """
    view, begun, outcome = opening.view, opening.record, _outcome(kv, report)
    lasted = (kv.returned_at if kv.returned else now) - kv.since
    loaded = report.loaded_tokens if report is not None else 0
    recomputed = kv.lost_tokens
    if report is not None:
        recomputed = report.context_tokens - report.cached_tokens
    came = Came(lasted, outcome != "ended", loaded, recomputed)
    told = account(view, opening.step, opening.charge, came)
    return PauseRecord(
        request=kv.key,
        at=begun.at,
        **opening.segment,
        tool=kv.tool,
        context_tokens=kv.context_tokens,
        blocks=view.resident,
        predicted_seconds=view.remaining,
        prices=begun.prices,
        decisions=tuple(_row(release, kv.since) for release in kv.releases),
        outcome=outcome,
        handling=report.handling if report is not None else "none",
        pause_seconds=lasted,
        queue_seconds=report.queue_seconds if report is not None else 0.0,
        loaded_tokens=loaded,
        recomputed_tokens=recomputed,
        cost=told.cost,
        hindsight=None if told.hindsight is None else _priced(told.hindsight),
        regret=told.regret,
        queue_cost=told.queued,
        work_cost=told.worked,
        wanted_seconds=opening.charge.wanted.wanted + opening.charge.queued.wanted,
        wanted_requests=wanted.requests,
        wanted_by=wanted.rows,
    )


def _row(release: Release, since: float) -> DecisionRow:
    told = PriceRecord() if release.prices is None else _priced(release.prices)
    return DecisionRow(
        seconds=round(release.at - since, 6),
        act=release.action,
        blocks=release.blocks,
        why=release.why,
        preserve=told.preserve,
        discard=told.discard,
        swap=told.swap,
        whom=release.whom,
    )


def _outcome(kv: PausedKV, report: ResumeReport | None) -> str:
    if report is not None:
        return "resumed"
    return "followed" if kv.follow_up is not None else "ended"


def _priced(price: Prices) -> PriceRecord:
    """Return prices for JSON, in which an impossible alternative (infinite) is null."""
    return PriceRecord(
        preserve=_finite(price.preserve),
        discard=_finite(price.discard),
        swap=_finite(price.swap),
    )


def _finite(price: float) -> float | None:
    return None if price == inf else price


def forecast_record(
    request: str, session: str, about: About, forecasts: Mapping[str, Forecast], at: float
) -> ForecastRecord:
    """Return the record of forecasts, by their predictors' names, at the wall time `at`."""
    return ForecastRecord(
        request=request,
        at=at,
        session=session,
        calls=about.calls,
        compared_with=about.kind,
        features=_features(about.facts),
        predictions=tuple(_prediction(name, made) for name, made in forecasts.items()),
    )


def _features(facts: Facts) -> FeatureRecord:
    return FeatureRecord(
        context_tokens=facts.context_tokens,
        seconds=round(facts.seconds, DIGITS),
        segment_tokens=facts.segment_tokens,
        segment_mean=round(facts.segment_mean, DIGITS),
        result_tokens=facts.result_tokens,
        result_mean=round(facts.result_mean, DIGITS),
        errors=facts.errors,
        last_error=facts.last_error,
        tool=facts.tool,
        words=list(facts.words),
        heads=[head for head, _ in facts.heads],
        head_calls=[calls for _, calls in facts.heads],
    )


def _prediction(name: str, made: Forecast) -> PredictionRecord:
    return PredictionRecord(
        predictor=name,
        decode_tokens=round(made.decode_tokens, DIGITS),
        decode_quantiles=_quantiles(made.decode_quantiles),
        calls_left=round(made.calls_left(), DIGITS),
        ends_now=round(made.ends_within(0), DIGITS),
        ends_within_3=round(made.ends_within(FEW_CALLS), DIGITS),
        pause_seconds=round(made.pause_seconds, DIGITS),
        long_pause=round(made.long_pause, DIGITS),
    )


def _quantiles(likely: Sequence[float]) -> list[float]:
    """Return the quantiles of equally likely values, which are ascending; [] of none."""
    return [round(likely[int(share * len(likely))], DIGITS) for share in SHARES] if likely else []


STEPS_PER_RECORD = 64

SECONDS_PER_RECORD = 0.5
"""While the engine steps, records are sent at least this often, for live views."""

Entry = dict[str, Any]
"""A record as plain data."""


class _Blocks(NamedTuple):
    """Blocks by owner."""

    running: int
    paused: int
    free: int


class RecordWriter(Recorder):
    """Appends records of the engine's events to `outbox`."""

    writes = takes_forecasts = True

    def __init__(
        self,
        port: EngineState,
        outbox: list[Entry],
        paused: PausedCounts,
        planner: SwapPlanner | None,
        wall: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        """Create it; `paused` is kept up to date, and `planner` is None without a host link.

        `wall` returns the seconds of records, and `clock` those of pauses, which never go back.
        """
        self._port = port
        self._outbox = outbox
        self._out: list[Entry] | deque[Entry] = outbox
        self._paused = paused
        self._planner = planner
        self._wall = wall
        self._clock = clock
        self._states = RequestStates(port, planner, wall)
        self._demand = BlockDemand()
        self._steps: dict[str, list[float]] = {each.name: [] for each in fields(StepsRecord)}
        self._in_flight = 0
        self._sent_at = 0.0
        self._told: _Blocks | None = None
        """The blocks by owner that were sent last; None before the first step."""

    @property
    def pending(self) -> bool:
        return self._states.pending or self._rest() is not None

    @property
    def states(self) -> RequestStates:
        """The state of each request."""
        return self._states

    # -- requests --------------------------------------------------------------------------------

    def arrived(self, request: Request, session: SessionState, followed: PausedKV | None) -> None:
        self._states.arrived(request, session, followed)
        self._result(followed, request.request_id)

    def returned(self, request: Request) -> None:
        self._states.returned(request)
        self._result(self._states.paused_kv(request.request_id), request.request_id)

    def _result(self, kv: PausedKV | None, request_id: str) -> None:
        if kv is not None and kv.opening is not None:
            self._demand.result(kv.opening.charge, self._clock(), request_id)

    def forecast(
        self,
        request: Request,
        session: SessionState,
        about: About,
        forecasts: Mapping[str, Forecast],
    ) -> None:
        ids, now = (request.request_id, session.session_id), self._states.now()
        self._write(forecast_record(*ids, about, forecasts, now))

    def preempted(self, request: Request, computed: int) -> None:
        self._states.preempted(request, computed)

    def looked(self, lacks: list[Lack], stop: str, front: str = "") -> None:
        self._states.looked(lacks, stop, front)
        self._demand.looked(lacks, stop)

    def ended(self, request_id: str) -> None:
        self._states.ended(request_id)

    def session_ended(self, request: Request, session: SessionState) -> None:
        self._write(
            SessionRecord(
                request=request.request_id,
                at=self._wall(),
                **session.segment(),
                calls=session.calls,
                most_tokens=request.max_tokens,
                outcome=outcome_of(request),
            )
        )

    # -- pauses ----------------------------------------------------------------------------------

    def paused(self, kv: PausedKV, view: PausedKVView, step: StepView, handling: str) -> None:
        at = self._states.now()
        charge = self._demand.begin(self._clock(), view.resident)
        size = self._port.sizes.block_bytes
        opening = kv.opening = open_account(kv, view, step, at, handling, charge, size)
        self._states.paused(kv, at)
        self._write(opening.record)

    def kv_changed(self, kv: PausedKV) -> None:
        self._states.held(kv)
        if kv.opening is not None:
            self._demand.change(kv.opening.charge, self._clock(), kv.resident)

    def kv_lost(self) -> None:
        self._states.recheck()

    def closed(self, kv: PausedKV, report: ResumeReport | None, now: float) -> None:
        if kv.opening is None:
            return
        wanted = self._demand.wanted(kv.opening.charge, kv.since, now)
        self._demand.end(kv.opening.charge, now)
        self._write(pause_record(kv, kv.opening, report, now, wanted))
        self._states.closed(kv)

    # -- steps -----------------------------------------------------------------------------------

    def scheduled(
        self, output: SchedulerOutput, work: StepWork, recomputed: int, most_tokens: int
    ) -> None:
        self._states.stepped(output)
        port = self._port
        free, slots = port.blocks.free(), port.slots_left(0)
        self._demand.stepped(self._clock(), free, self._states.queued, slots)
        total = output.total_num_scheduled_tokens
        if not total:
            self._send_states()
            return
        self._in_flight += 1
        purposes = (work.decode_tokens, total - work.decode_tokens - recomputed, recomputed)
        running = len(output.num_scheduled_tokens)
        row = self._row(running, purposes, work.partial_blocks, most_tokens)
        for column, value in zip(self._steps.values(), row, strict=True):
            column.append(value)

    def _row(
        self, running: int, tokens: tuple[int, int, int], partial: int, most_tokens: int
    ) -> tuple[float, ...]:
        planner, blocks = self._planner, self._blocks()
        traffic = planner.traffic if planner is not None else None
        return (
            self._wall(),
            0.0,
            running,
            self._paused.requests,
            *tokens,
            traffic.budget if traffic is not None else 0,
            traffic.saved if traffic is not None else 0,
            traffic.loaded if traffic is not None else 0,
            *blocks,
            self._states.queued,
            self.cached_blocks(blocks.free, partial),
            planner.store.used if planner is not None else 0,
            most_tokens,
        )

    def _blocks(self) -> _Blocks:
        pool = self._port.blocks
        free, paused = pool.free(), self._paused.resident
        return _Blocks(pool.total - free - paused, paused, free)

    def _rest(self) -> _Blocks | None:
        """Return who holds the blocks, if no request runs and that differs from what was sent."""
        if self._told is None or self._in_flight or self._port.running():
            return None
        blocks = self._blocks()
        return blocks if blocks != self._told else None

    def cached_blocks(self, free: int, partial: int) -> int:
        """Return an estimate of the free blocks that the prefix cache can still find.

        The prefix cache knows full blocks, free or in use. Blocks in use are full, except the last
        ones of requests (`partial` of the running ones) and blocks that loads have yet to fill.
        """
        partial += self._paused.partial
        if self._planner is not None:
            partial += self._planner.loads.unfilled_blocks
        in_use = self._port.blocks.total - free - partial
        return max(0, min(free, self._port.blocks.hashed() - in_use))

    def computed(self, seconds: float, in_flight: int, now: float) -> None:
        self._in_flight = in_flight
        durations = self._steps["seconds"]
        done = len(durations) - in_flight
        durations[done - 1] = seconds
        due = now - self._sent_at >= SECONDS_PER_RECORD or not self._port.running()
        if due or done >= STEPS_PER_RECORD:
            self._sent_at = now
            self._send(done)

    def flush(self) -> None:
        done = len(self._steps["at"]) - self._in_flight
        if done > 0:
            self._send(done)
        self._send_states()

    def suspend(self) -> None:
        self.flush()
        self._out = deque(maxlen=0)

    def resume(self) -> None:
        self.flush()
        self._out = self._outbox
        self._told = None

    def _send(self, done: int) -> None:
        """Send the `done` oldest steps, and the changes of state so far."""
        for record in self._states.take():
            self._write(record)
        sent = {name: rows[:done] for name, rows in self._steps.items()}
        self._write(StepsRecord(**sent))
        self._steps = {name: rows[done:] for name, rows in self._steps.items()}
        self._told = _Blocks(*(int(sent[f"{name}_blocks"][-1]) for name in _Blocks._fields))
        self._send_rest()

    def _send_states(self) -> None:
        for record in self._states.take():
            self._write(record)
        self._send_rest()

    def _send_rest(self) -> None:
        """Tell of blocks that were given up since the last step, or are, while nothing runs."""
        blocks = self._rest()
        if blocks is not None:
            self._told = blocks
            self._write(RestRecord(self._states.now(), *blocks))

    def _write(self, record: Record) -> None:
        self._out.append(record.entry())
