"""Routers that look at loads: the least loaded replica, affinity of sessions, and one queue."""

from collections.abc import Sequence

from caesura.scheduler.routing.view import Asked, Load, least_loaded


class Least:
    """Serves every request at the replica with the fewest requests; of equals in turn."""

    keeps = False
    looks = True

    def __init__(self) -> None:
        self._next = 0

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the least loaded replica."""
        place = least_loaded(loads, self._next)
        self._next = place + 1
        return place


class Affinity:
    """Serves a session where it began: at the replica that had the fewest requests then.

    With a `slack` above 0, a session leaves a replica that has more than `slack` requests more than
    the least loaded one.
    """

    looks = True

    def __init__(self, slack: int = 0) -> None:
        """Create it; raises `ValueError` for a negative slack."""
        if slack < 0:
            raise ValueError(f"slack must be 0 (never leave) or a number of requests, got {slack}")
        self._slack = slack
        self._least = Least()
        self.keeps = not slack

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the session's replica, or the least loaded one."""
        holder = asked.holder
        if holder is not None:
            fewest = min(load.requests for load in loads)
            if not self._slack or loads[holder].requests <= fewest + self._slack:
                return holder
        return self._least.choose(asked, loads)


class OneQueue:
    """Lets requests wait in one queue until a replica has room for them.

    The replica that served the session before goes first, if it has room. Otherwise the request
    goes to the least loaded one with room, where its context is computed again.
    """

    keeps = False
    looks = True

    def __init__(self) -> None:
        self._next = 0

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int | None:
        """Return a replica with room; None if no replica has room."""
        if asked.holder is not None and loads[asked.holder].has_room(asked.tokens):
            return asked.holder
        count = len(loads)
        order = (at % count for at in range(self._next, self._next + count))
        room = [place for place in order if loads[place].has_room(asked.tokens)]
        if not room:
            return None
        place = min(room, key=lambda one: loads[one].requests)
        self._next = place + 1
        return place
