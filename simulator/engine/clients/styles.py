"""How clients ask for a segment: by pushing to a request that pauses, or with a new one.

A client of Caesura keeps one request for its session and pushes results to it; a client of stock
vLLM sends the whole context anew after every tool, as agents do today.
"""

from typing import Any, Protocol

from vllm import SamplingParams
from vllm.v1.request import Request

from caesura.intercept.calls.watch import Turn, WatchPlan
from caesura.scheduler.vllm.wire import WATCH_KEY
from caesura.simulator.engine.clients.live import Live
from caesura.simulator.engine.tokens import WORD, Tokens


class Style(Protocol):
    """How a segment is asked for."""

    def request_id(self, live: Live) -> str:
        """Return the id of the request that serves the present segment."""
        ...

    def request(self, live: Live, most_tokens: int, now: float) -> Request:
        """Make the request, or the chunk of one, that asks for the present segment."""
        ...

    def goodbye(self, live: Live) -> Request | None:
        """Make what is sent after the last segment, if anything is."""
        ...


class Pausing:
    """One resumable request for a session, to which results are pushed."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def request_id(self, live: Live) -> str:
        """It is the session's key."""
        return live.session.key

    def request(self, live: Live, most_tokens: int, now: float) -> Request:
        """Begin the session, or push the token that ended the last segment, and the result."""
        given = [WORD] * live.segment.given_tokens
        if live.index:
            # The last token of a turn has no KV yet, so it is sent again.
            given.insert(0, self._tokens.last_of(live.session.segments[live.index - 1].tool))
        # From the call's token alone nobody could tell where its turn began.
        turn: Turn = "holding" if live.segment.tool else "fresh"
        plan = WatchPlan(("hermes",), self._tokens.offered_to(live.session.kind), (), turn)
        return Request(
            request_id=live.session.key,
            prompt_token_ids=given,
            sampling_params=_sampling(live, most_tokens, {WATCH_KEY: plan.to_wire()}),
            pooling_params=None,
            arrival_time=now,
            block_hasher=None if live.index else live.names.hash_blocks,
            resumable=True,
        )

    def goodbye(self, live: Live) -> Request | None:
        """Close the input of the session, as vLLM's frontend does: a final, empty request."""
        return Request(
            request_id=live.session.key,
            prompt_token_ids=[WORD],
            sampling_params=SamplingParams(),
            pooling_params=None,
            arrival_time=live.result.ended,
        )


class Anew:
    """A new request for every segment, with all tokens so far.

    Its priority is its session's place, which counts where vLLM schedules by priorities.
    """

    def request_id(self, live: Live) -> str:
        """Return a new name for every segment."""
        return f"{live.session.key}/{live.index}"

    def request(self, live: Live, most_tokens: int, now: float) -> Request:
        """Ask with the whole context."""
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
        """Nothing is left to say."""
        return None


def _sampling(live: Live, most_tokens: int, extra: dict[str, Any] | None) -> SamplingParams:
    return SamplingParams(max_tokens=most_tokens, stop_token_ids=[live.last], extra_args=extra)
