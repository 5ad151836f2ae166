"""Records of pauses and forecasts, made of what the scheduler knows.

A pause has one at its begin, with what each alternative is expected to cost, and one at its end,
with what it did cost. A forecast is what predictors expect of a session when it is queued.
"""

from collections.abc import Mapping, Sequence
from math import inf

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
)
from caesura.scheduler.records.outcomes import FEW_CALLS
from caesura.scheduler.vllm.engine.export.queue_delays import Wanted
from caesura.scheduler.vllm.engine.sessions.paused_kv import Opening, PausedKV, Release

DIGITS = 4
"""The number of decimals that are kept, which makes records short."""


SHARES = (0.1, 0.5, 0.9)
"""The quantiles that are recorded of a distribution."""


def open_account(
    kv: PausedKV, view: PausedKVView, step: StepView, at: float, handling: str, charge: Charge
) -> Opening:
    """Return the state at the begin of a pause, at the wall time `at`, with its record."""
    told = kv.session.segment()
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
