"""The expected cost of a pause at its begin, and its actual cost at its end."""

from dataclasses import dataclass
from math import inf
from typing import TypedDict

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.kv.pressure import Charge
from caesura.intercept.kv.views import PausedKVView, Prices, StepView
from caesura.intercept.kv.waste import Came, account, prices
from caesura.intercept.pause_hints import PERSON
from caesura.scheduler.records import (
    DecisionRow,
    OpeningInputs,
    OpeningRecord,
    PauseRecord,
    PriceRecord,
)
from caesura.scheduler.vllm.paused.paused_kv import PausedKV, Release
from caesura.scheduler.vllm.queue.sessions import SessionState
from caesura.scheduler.vllm.records.demand import Wanted


class SegmentFields(TypedDict):
    """The common fields of records of a segment."""

    session: str
    arrival: float
    given_tokens: int
    decoded_tokens: int


def segment(session: SessionState) -> SegmentFields:
    """Return the session's id and arrival, and its last segment's given and decoded tokens."""
    return SegmentFields(
        session=session.session_id,
        arrival=session.arrival,
        given_tokens=session.given_tokens,
        decoded_tokens=session.decoded_tokens,
    )


@dataclass(frozen=True, slots=True)
class Opening:
    """The state of a paused request and of the engine when the pause began, and its charge."""

    view: PausedKVView
    step: StepView
    segment: SegmentFields
    record: OpeningRecord
    charge: Charge


def open_account(
    kv: PausedKV, view: PausedKVView, step: StepView, at: float, handling: str, charge: Charge
) -> Opening:
    """Return the state at the begin of a pause, at the wall time `at`, with its record."""
    told = segment(kv.session)
    record = OpeningRecord(
        request=kv.key,
        at=at,
        session=told["session"],
        tool=kv.tool,
        person=kv.tool is not None and kv.tool.startswith(PERSON),
        context_tokens=kv.context_tokens,
        blocks=view.resident,
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
        wanted_seconds=opening.charge.wanted.wanted,
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
