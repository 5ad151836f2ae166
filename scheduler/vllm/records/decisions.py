"""What a pause is expected to cost when it begins, and what it did cost when it is over."""

from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.kv.views import PausedKVView, Prices, StepView
from caesura.intercept.kv.waste import discard_price, prices, swap_price, waste_preserve
from caesura.intercept.pause_hints import PERSON
from caesura.scheduler.vllm.paused.paused_kv import PausedKV
from caesura.scheduler.vllm.queue.sessions import SessionState


@dataclass(frozen=True, slots=True)
class Opening:
    """What was known when a pause began, at the wall time `at`."""

    view: PausedKVView
    step: StepView
    price: Prices
    at: float
    segment: dict[str, Any]


def open_account(kv: PausedKV, view: PausedKVView, step: StepView, at: float) -> Opening:
    """Keep what is known at the beginning of a pause."""
    return Opening(view, step, prices(view, step), at, segment(kv.session))


def opening_record(kv: PausedKV, opening: Opening, handling: str) -> dict[str, Any]:
    """Write down what was known when a pause began, and what each alternative was priced at."""
    view, step = opening.view, opening.step
    return {
        "kind": "opening",
        "request": kv.key,
        "session": opening.segment["session"],
        "tool": kv.tool,
        "person": kv.tool is not None and kv.tool.startswith(PERSON),
        "at": opening.at,
        "context_tokens": kv.context_tokens,
        "blocks": view.resident,
        "predicted_seconds": view.remaining,
        "deadline_seconds": None if kv.pause is None else kv.pause.deadline_seconds,
        "handling": handling,
        "prices": _plain(opening.price),
        "inputs": {
            "elapsed": view.elapsed,
            "remaining": view.remaining,
            "resident": view.resident,
            "free_to_release": view.free_to_release,
            "uncopied": view.uncopied,
            "hosted": view.hosted,
            "missing": view.missing,
            "block_size": step.block_size,
            "total_blocks": step.total_blocks,
            "free_blocks": step.free_blocks,
            "host_free": step.host_free,
            "running_tokens": step.running_tokens,
            "running_context": step.running_context,
            "link_blocks": step.link_blocks,
            "swap_pays": step.swap_pays,
            "step_seconds": step.cost.step_seconds(step.running_tokens, step.running_context),
        },
    }


def pause_record(kv: PausedKV, report: ResumeReport | None, now: float) -> dict[str, Any]:
    """Return the record of a pause that is over; no `report`: its request never resumed."""
    opening: Opening = kv.opening
    view, step = opening.view, opening.step
    lasted = (kv.returned_at if kv.returned else now) - kv.since
    recomputed = report.context_tokens - report.cached_tokens if report is not None else 0
    hindsight = Prices(
        preserve=waste_preserve(lasted, view.resident),
        discard=discard_price(view, step),
        swap=swap_price(view, step),
    )
    actual = kv.held_block_seconds
    if recomputed and view.resident:
        share = min(1.0, recomputed / max(1, view.context_tokens))
        actual += hindsight.discard * share
    best = min(hindsight.preserve, hindsight.discard, hindsight.swap)
    return {
        "kind": "pause",
        "request": kv.key,
        **opening.segment,
        "tool": kv.tool,
        "at": opening.at,
        "context_tokens": kv.context_tokens,
        "blocks": view.resident,
        "predicted_seconds": view.remaining,
        "prices": _plain(opening.price),
        "decisions": [
            [round(at - kv.since, 6), action, blocks, why] for at, action, blocks, why in kv.events
        ],
        "outcome": _outcome(kv, report),
        "handling": report.handling if report is not None else "none",
        "pause_seconds": lasted,
        "queue_seconds": report.queue_seconds if report is not None else 0.0,
        "loaded_tokens": report.loaded_tokens if report is not None else 0,
        "recomputed_tokens": recomputed,
        "cost": actual,
        "hindsight": _plain(hindsight),
        "regret": max(0.0, actual - best),
    }


def segment(session: SessionState) -> dict[str, Any]:
    """Name the session, when it came, and what its last segment was given and has decoded."""
    return {
        "session": session.session_id,
        "arrival": session.arrival,
        "given_tokens": session.given_tokens,
        "decoded_tokens": session.decoded_tokens,
    }


def _outcome(kv: PausedKV, report: ResumeReport | None) -> str:
    if report is not None:
        return "resumed"
    return "followed" if kv.follow_up is not None else "ended"


def _plain(price: Prices) -> dict[str, float | None]:
    """Return prices as JSON can hold them: no alternative is null."""
    return {name: value if value != inf else None for name, value in asdict(price).items()}
