"""How clients request a segment: they push to a request that pauses, or send a new one.

A client of Caesura keeps one request for its session and pushes results to it. A client of stock
vLLM sends the whole context again after every tool, as agents do today.
"""

from typing import Any, Protocol

from vllm import SamplingParams
from vllm.v1.request import Request

from caesura.intercept.calls.watch import Turn, WatchPlan
from caesura.scheduler.admission.programs import Origin
from caesura.scheduler.vllm.wire import WATCH_KEY
from caesura.simulator.engine.clients.live import Live
from caesura.simulator.engine.tokens import WORD, Tokens
from caesura.simulator.session import Session


class Style(Protocol):
    """The way in which a client requests segments."""

    def request_id(self, live: Live) -> str:
        """Return the id of the request that serves the present segment."""
        ...

    def request(self, live: Live, most_tokens: int, now: float) -> Request:
        """Return the request, or the chunk of a request, for the present segment."""
        ...

    def goodbye(self, live: Live) -> Request | None:
        """Return the request to send after the last segment, or None."""
        ...


class Pausing:
    """One resumable request for a session; the client pushes results to it."""

    def __init__(self, tokens: Tokens, names_parents: bool = False) -> None:
        """Create it; with `names_parents`, a sub-agent's request names its parent."""
        self._tokens = tokens
        self._names_parents = names_parents

    def request_id(self, live: Live) -> str:
        """Return the session's key."""
        return live.session.key

    def request(self, live: Live, most_tokens: int, now: float) -> Request:
        """Return a prompt with the whole context, or what follows the engine's request.

        That is the last segment's final token with the tool's result.
        """
        given = [WORD] * (live.context if live.anew else live.segment.given_tokens)
        if not live.anew:
            # The last token of a turn has no KV yet, so it is sent again.
            given.insert(0, self._tokens.last_of(live.session.segments[live.index - 1].tool))
        # The call's single token does not show that its turn holds a call.
        turn: Turn = "holding" if live.segment.tool else "fresh"
        plan = WatchPlan(("hermes",), self._tokens.offered_to(live.session.kind), (), turn)
        return Request(
            request_id=live.session.key,
            prompt_token_ids=given,
            sampling_params=_sampling(live, most_tokens, self._extra_args(live.session, plan)),
            pooling_params=None,
            arrival_time=now,
            block_hasher=live.names.hash_blocks if live.anew else None,
            resumable=True,
        )

    def _extra_args(self, session: Session, plan: WatchPlan) -> dict[str, Any]:
        """Return vLLM's `extra_args`: the plan of the watch, and where the session comes from."""
        origin = Origin(session.tenant)
        if self._names_parents:
            origin = Origin(session.tenant, session.key, session.parent)
        return {WATCH_KEY: plan.to_wire(), **origin.to_wire()}

    def goodbye(self, live: Live) -> Request | None:
        """Return a final request that closes the session's input, as vLLM's frontend sends it."""
        return Request(
            request_id=live.session.key,
            prompt_token_ids=[WORD],
            sampling_params=SamplingParams(),
            pooling_params=None,
            arrival_time=live.result.ended,
        )


class Anew:
    """A new request for every segment, with all tokens so far.

    Its priority is its session's place, which matters if vLLM schedules by priority.
    """

    def request_id(self, live: Live) -> str:
        """Return an id that is new for every segment."""
        return f"{live.session.key}/{live.index}"

    def request(self, live: Live, most_tokens: int, now: float) -> Request:
        """Return a request with the whole context."""
        return Request(
            request_id=self.request_id(live),
            prompt_token_ids=[WORD] * live.context,
            sampling_params=_sampling(live, most_tokens, None),
            pooling_params=None,
            arrival_time=now,
            priority=live.place,
            block_hasher=live.names.hash_blocks,
        )

    def goodbye(self, live: Live) -> Request | None:
        """Return None: the last request has already ended."""
        return None


def _sampling(live: Live, most_tokens: int, extra: dict[str, Any] | None) -> SamplingParams:
    return SamplingParams(max_tokens=most_tokens, stop_token_ids=[live.last], extra_args=extra)
