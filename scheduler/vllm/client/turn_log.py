"""The pieces in which a turn's tokens come, from an engine or from a log, and the log of a session.

A session without a log pays nothing for it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from typing import Any, Literal

from vllm.outputs import RequestOutput

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.calls.watch import Verdict, Watch, WatchPlan
from caesura.scheduler.errors import RequestFailed
from caesura.scheduler.session_log import LoggedTurn, SampledFacts, SessionLog, TurnOutcome
from caesura.scheduler.vllm.client.request import SentTurn
from caesura.scheduler.vllm.client.turns import Language
from caesura.scheduler.vllm.tokenizer import vocabulary_from
from caesura.scheduler.vllm.wire import REPORT_KEY, WATCH_KEY


@dataclass(frozen=True, slots=True)
class TurnPiece:
    """Tokens that came together; the last piece of a turn says how the turn ended."""

    token_ids: list[int]
    text: str | None = None
    """vLLM's text of the tokens; None if they come from a log."""
    logprobs: Sequence[Any] = ()
    outcome: TurnOutcome | None = None
    facts: SampledFacts | None = None
    """What a log wants to know of the tokens."""

    @property
    def is_logged(self) -> bool:
        """Whether the piece comes from a log."""
        return self.text is None


class TurnLog:
    """Yields the turns to replay, then takes those that are new."""

    def __init__(self, log: SessionLog | None) -> None:
        self._log = log
        self._left = deque(log.turns if log is not None else ())
        self._key, self._readers = "", 0

    @property
    def writes(self) -> bool:
        """Whether there is a log that takes new turns."""
        return self._log is not None

    @property
    def takes_facts(self) -> bool:
        """Whether there is a log that wants log probabilities and versions of the weights."""
        return self._log is not None and self._log.takes_facts

    def next(self) -> LoggedTurn | None:
        """Return the next turn to replay, or None if the session goes on by itself."""
        return self._left.popleft() if self._left else None

    def new_ids(self) -> Callable[[], str] | None:
        """Return what makes the ids of the calls that the next reader reads.

        They follow from the log's key, so that a replay makes the same. None without a log. An id
        has nine alphanumeric characters, as Mistral's chat templates require.
        """
        if self._log is None:
            return None
        if self._log.key != self._key:
            self._key, self._readers = self._log.key, 0
        key, numbers = f"{self._key}/{self._readers}", count()
        self._readers += 1
        return lambda: blake2b(f"{key}/{next(numbers)}".encode(), digest_size=8).hexdigest()[:9]

    def begin(self, turn: LoggedTurn) -> None:
        """Write a turn; one with media is the last that is written."""
        if self._log is not None:
            self._log.begin(turn)
            if turn.has_media:
                self._log = None

    def sampled(self, piece: TurnPiece) -> None:
        """Write the tokens of a piece, and the end of the last turn where it has that."""
        if self._log is None:
            return
        self._log.sampled(piece.token_ids, piece.facts)
        if piece.outcome is not None:
            self._log.end(piece.outcome)


def piece_of(
    output: RequestOutput, cached_tokens: int, facts: SampledFacts | None = None
) -> TurnPiece:
    """Return a piece from the engine, for a turn with so many tokens in the cache.

    Raises `RequestFailed` for an end that is none of a turn.
    """
    made = output.outputs[0]
    tokens, finish = list(made.token_ids), made.finish_reason
    if finish is None:
        return TurnPiece(tokens, made.text, made.logprobs or (), facts=facts)
    if finish not in ("stop", "length"):
        raise RequestFailed(f"the engine ended the request early: finish reason {finish!r}")
    report: dict[str, Any] = (output.kv_transfer_params or {}).get(REPORT_KEY, {})
    resume = ResumeReport(**report["resume"]) if report.get("resume") else None
    cached = resume.cached_tokens if resume else cached_tokens
    why: Literal["stop", "length"] = "length" if finish == "length" else "stop"
    paused = bool(report.get("paused"))
    outcome = TurnOutcome(why, report.get("verdict"), paused, cached, resume)
    return TurnPiece(tokens, made.text, made.logprobs or (), outcome, facts)


def logged_pieces(logged: LoggedTurn, outcome: TurnOutcome | None) -> Iterator[TurnPiece]:
    """Yield what a log holds of a turn, token by token, as an engine without load sends it."""
    last = len(logged.sampled) - 1
    for at, token in enumerate(logged.sampled):
        yield TurnPiece([token], outcome=outcome if at == last else None)


def outcome_of(
    logged: LoggedTurn, turn: SentTurn, ends: frozenset[int], language: Language, pausing: bool
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
        vocabulary = language.vocabulary or vocabulary_from(language.tokenizer)
        found = Watch(WatchPlan.from_wire(plan), vocabulary, ends).first_stop(logged.sampled)
        if found is not None:
            return TurnOutcome("stop", found[1].value, pausing and found[1] is Verdict.CALL)
    if logged.sampled[-1] in ends:
        return TurnOutcome("stop")
    if len(logged.sampled) >= (turn.params.max_tokens or 0):
        return TurnOutcome("length")
    return None
