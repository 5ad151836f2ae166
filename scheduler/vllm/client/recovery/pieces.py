"""The pieces in which a turn's tokens come, from an engine or from a log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from vllm.outputs import RequestOutput

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.calls.watch import Verdict, Watch, WatchPlan
from caesura.scheduler.errors import RequestFailed
from caesura.scheduler.session_log import LoggedTurn, TurnOutcome
from caesura.scheduler.vllm.client.recovery.request import SentTurn
from caesura.scheduler.vllm.tokenizer import vocabulary_from
from caesura.scheduler.vllm.wire import REPORT_KEY, WATCH_KEY

if TYPE_CHECKING:
    from caesura.scheduler.vllm.client.engine import VllmEngine


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that came together; the last piece of a turn says how the turn ended."""

    token_ids: list[int]
    text: str | None = None
    """vLLM's text of the tokens; None if they come from a log."""
    logprobs: Sequence[Any] = ()
    outcome: TurnOutcome | None = None

    @property
    def is_logged(self) -> bool:
        """Whether the piece comes from a log."""
        return self.text is None


def piece_of(output: RequestOutput, cached_tokens: int) -> Piece:
    """Return a piece from the engine, for a turn with so many tokens in the cache.

    Raises `RequestFailed` for an end that is none of a turn.
    """
    made = output.outputs[0]
    tokens, finish = list(made.token_ids), made.finish_reason
    if finish is None:
        return Piece(tokens, made.text, made.logprobs or ())
    if finish not in ("stop", "length"):
        raise RequestFailed(f"the engine ended the request early: finish reason {finish!r}")
    report: dict[str, Any] = (output.kv_transfer_params or {}).get(REPORT_KEY, {})
    resume = ResumeReport(**report["resume"]) if report.get("resume") else None
    cached = resume.cached_tokens if resume else cached_tokens
    why: Literal["stop", "length"] = "length" if finish == "length" else "stop"
    paused = bool(report.get("paused"))
    outcome = TurnOutcome(why, report.get("verdict"), paused, cached, resume)
    return Piece(tokens, made.text, made.logprobs or (), outcome)


def logged_pieces(logged: LoggedTurn, outcome: TurnOutcome | None) -> Iterator[Piece]:
    """Yield what a log holds of a turn, token by token, as an engine without load sends it."""
    last = len(logged.sampled) - 1
    for at, token in enumerate(logged.sampled):
        yield Piece([token], outcome=outcome if at == last else None)


def outcome_of(
    logged: LoggedTurn, turn: SentTurn, ends: frozenset[int], engine: "VllmEngine", pausing: bool
) -> TurnOutcome | None:
    """Return how a logged turn ended, or None if it has to go on.

    The log may hold the last token of a turn and not its end.
    """
    if not logged.sampled:
        return None
    if logged.outcome is not None:
        return logged.outcome
    plan = (turn.params.extra_args or {}).get(WATCH_KEY)
    if plan is not None:
        vocabulary = engine.vocabulary or vocabulary_from(engine.tokenizer)
        found = Watch(WatchPlan.from_wire(plan), vocabulary, ends).first_stop(logged.sampled)
        if found is not None:
            return TurnOutcome("stop", found[1].value, pausing and found[1] is Verdict.CALL)
    if logged.sampled[-1] in ends:
        return TurnOutcome("stop")
    if len(logged.sampled) >= (turn.params.max_tokens or 0):
        return TurnOutcome("length")
    return None
