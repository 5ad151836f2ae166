"""Sub-agents of simulated sessions: which call starts them, and which parents wait for them."""

from collections import defaultdict
from collections.abc import Iterable

from caesura.simulator.engine.clients.live import Live
from caesura.simulator.session import Session


class Families:
    """Parents that wait for their sub-agents; sessions of no family are ignored.

    Raises `ValueError` for a sub-agent whose parent is unknown or never makes its call.
    """

    def __init__(self, sessions: Iterable[Session]) -> None:
        known = {session.key: session for session in sessions}
        self._of: defaultdict[tuple[str, int], list[Session]] = defaultdict(list)
        for session in known.values():
            if session.parent:
                _demand_call(session, known.get(session.parent))
                self._of[session.parent, session.parent_call].append(session)
        self._waiting: dict[str, tuple[Live, int]] = {}

    def started_by(self, live: Live) -> list[Session]:
        """Return the sub-agents that a session's last call starts; the session waits for them."""
        started = self._of.pop((live.session.key, live.index), [])
        if started:
            self._waiting[live.session.key] = (live, len(started))
        return started

    def ended(self, live: Live) -> Live | None:
        """Return the parent that goes on after the end of `live`, or None.

        The seconds that its last sub-agent waited for tools become the parent's.
        """
        key = live.session.parent
        if not key:
            return None
        parent, left = self._waiting.pop(key)
        if left > 1:
            self._waiting[key] = (parent, left - 1)
            return None
        parent.result.tool_seconds += live.result.tool_seconds
        return parent


def _demand_call(session: Session, parent: Session | None) -> None:
    calls = len(parent.segments) - 1 if parent is not None else 0
    if not 0 <= session.parent_call < calls:
        raise ValueError(
            f"session {session.key} is started by call {session.parent_call} of"
            f" {session.parent!r}, which makes {calls} calls: name a parent of the workload"
            " and one of its calls"
        )
