"""Clients whose sessions nobody watches, as vLLM's own streaming input serves them."""

from collections.abc import Iterable
from typing import Any

from tests.scheduler.world import (
    END,
    Session,
    World,
)


class VllmSessions(World):
    """The same clients with sessions that nobody watches: the end token ends every turn.

    A client may push its next chunk while the turn before still runs (`push_early`).
    """

    def __init__(self, scheduler: Any, depth: int = 0) -> None:
        super().__init__(scheduler, depth)
        self._pushed_early: dict[str, int] = {}

    def session(
        self, request_id: str, prompt: Iterable[int], *texts: str, watched: bool = False
    ) -> Session:
        session = super().session(request_id, prompt, *texts, watched=False)
        for part in session.parts[:-1:2]:
            part.append(END)
        return session

    def push_early(self, session: Session) -> None:
        if not session.paused:
            earlier = self._pushed_early.get(session.request_id, 0)
            self._pushed_early[session.request_id] = earlier + 1
        session.paused = True
        self.answer(session)

    def _add(self, *args: Any, **options: Any) -> None:
        super()._add(*args, **{**options, "watched": False})

    def _deliver(self) -> None:
        running = [session for session in self.sessions.values() if not session.finished]
        super()._deliver()
        for session in running:
            if not session.finished or not session.formats:
                continue
            if self._pushed_early.get(session.request_id):
                self._pushed_early[session.request_id] -= 1
                session.finished = False
            elif session.position + 1 < len(session.parts):
                session.paused, session.finished = True, False
            else:
                self.goodbye(session)
