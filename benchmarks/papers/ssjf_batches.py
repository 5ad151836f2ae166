"""SSJF's three ways of batching, on a scheduler that has only continuous batching.

Without batching one request runs at a time (`max_num_seqs` 1). A dynamic batch is closed: no
request joins until all of it has ended. That is an admission, plugged in by its import path. No
batch waits to be filled (a `batch_wait_timeout` of 0). A request that ends early leaves its place
empty, where the frameworks of the paper go on computing padding. Its client is answered when the
batch has ended, which is for `answered` to say, since vLLM answers at once.
"""

from collections.abc import Sequence

from caesura.scheduler.policy.admission import Batched, Gate
from caesura.simulator.results import RunResult, SessionResult


class Batches:
    """Admits to an empty batch only; how many it takes is `max_num_seqs`."""

    name = "batches"

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Return a gate that is open if no request runs."""
        return _Gate(not running)

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Nothing to learn."""


class _Gate:
    def __init__(self, is_open: bool) -> None:
        self._is_open = is_open

    def admits(self, candidate: Batched) -> bool:
        return self._is_open


def answered(run: RunResult, closed: bool) -> list[tuple[SessionResult, float]]:
    """Return every session and the second at which its client has the answer.

    In a `closed` batch that is the end of its longest member. Its members have their first tokens
    in the same step, since their prompts fit into one.
    """
    ends = {session.key: session.ended for session in run.sessions}
    if closed:
        last: dict[float, float] = {}
        for session in run.sessions:
            first = session.segments[0][1]
            last[first] = max(last.get(first, 0.0), session.ended)
        ends = {session.key: last[session.segments[0][1]] for session in run.sessions}
    return [(session, ends[session.key]) for session in run.sessions]
