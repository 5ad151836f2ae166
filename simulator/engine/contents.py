"""The words of calls and the errors of results in a simulation, which the workload states."""

from collections.abc import Callable

from vllm.v1.request import Request

from caesura.scheduler.predict.words import NO_WORDS, CallWords
from caesura.simulator.session import Segment, Session


class PlannedContents:
    """Looks up the contents of sessions, by session and by the number of calls."""

    def __init__(self, truth: Callable[[str], Session | None]) -> None:
        """Create it; `truth` returns the session with a key, or None if it is unknown."""
        self._truth = truth

    def words(self, session: str, calls: int, call: bytes) -> CallWords:
        """Return the hashed words of the call that ends segment `calls`."""
        segment = self._segment(session, calls)
        return segment.words if segment is not None else NO_WORDS

    def failed(self, session: str, calls: int, request: Request, tokens: int) -> bool:
        """Return whether the result of the last of `calls` calls is an error."""
        segment = self._segment(session, calls - 1)
        return segment is not None and segment.failed

    def _segment(self, session: str, index: int) -> Segment | None:
        found = self._truth(session)
        segments = found.segments if found is not None else ()
        return segments[index] if 0 <= index < len(segments) else None
