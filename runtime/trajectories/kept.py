"""`KeptSessions`: the trajectories of a server's sessions, bounded in number, size and age.

A session is its name and its owner, who alone finds it. It goes with all that was recorded of it.
"""

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from caesura.runtime.trajectories.recorder import TrajectoryRecorder
from caesura.runtime.trajectories.trajectory import Trajectory
from caesura.scheduler.policy.homes import Recent
from caesura.scheduler.programs import Origin

SESSION = "sess"
"""How the ids begin that a server gives to sessions."""
MAX_ANSWERS = 100_000
"""The answers whose session is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBounds:
    """How much is kept; the sessions that were not used for the longest time go first."""

    sessions: int = 10_000
    tokens: int = 100_000_000
    """Of all sessions together; a token takes 4 bytes."""
    seconds: float = 86_400.0
    """How long a session is kept behind its last request."""


class KeptSession:
    """A session: what it has computed, and what its client says of it."""

    def __init__(self, name: str, origin: Origin, owner: str, now: float) -> None:
        self.id = name
        self.owner = owner
        self.tenant = origin.tenant
        """The digest of the key that it was begun with."""
        self.parent = "" if origin.parent == name else origin.parent
        """The id of the session that started it, or an empty text."""
        self.metadata: dict[str, str] = {}
        self.rewards: dict[str, float] = {}
        self.created_at = self.used_at = now
        self.completed_at: float | None = None
        self.recorder = TrajectoryRecorder(name)
        self.counted = 0
        """Its tokens among those that all sessions have."""

    def trajectory(self) -> Trajectory:
        """Return all that was recorded. Raises `UsageError` if tokens are not known."""
        made = self.recorder.trajectory()
        rewards, metadata = dict(self.rewards), dict(self.metadata)
        return replace(made, parent=self.parent or None, rewards=rewards, metadata=metadata)


class KeptSessions:
    """The sessions of one server.

    With `one_owner`, as of a server without keys, all sessions are everybody's. Use it on one event
    loop.
    """

    def __init__(
        self,
        bounds: SessionBounds,
        *,
        one_owner: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bounds = bounds
        self._one_owner = one_owner
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], KeptSession] = OrderedDict()
        """By owner and name, those that were used last at the end."""
        self._answers = Recent(MAX_ANSWERS)
        """The names of sessions, by owner and the id of an answer."""
        self._tokens = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the server, once there is a session."""

    # -- finding ---------------------------------------------------------------------------------

    def find(self, name: str, tenant: str, *, everybodys: bool = False) -> KeptSession | None:
        """Return the session of a name, or the one of an answer's id; None if there is none.

        It is one of the key `tenant`; with `everybodys` it may also be another one's.
        """
        self._drop_old()
        owner = self._owner(tenant)
        for each in (name, self._answers.get((owner, name))):
            if (found := self._kept.get((owner, each))) is not None:
                return found
        if not everybodys:
            return None
        return next((each for each in reversed(self._kept.values()) if each.id == name), None)

    def name_of(self, answer: str, tenant: str) -> str:
        """Return the name of the session of an answer, or an empty text."""
        found = self.find(answer, tenant)
        return "" if found is None else found.id

    def below(self, session: KeptSession) -> list[KeptSession]:
        """Return the sessions that a session has started, and those that they have, in order."""
        found, names = [session], {session.id}
        known = sorted(self._kept.values(), key=lambda each: each.created_at)
        for parent in found:
            for each in known:
                is_child = each.owner == session.owner and each.parent == parent.id
                if is_child and each.id not in names:
                    names.add(each.id)
                    found.append(each)
        return found[1:]

    # -- growing ---------------------------------------------------------------------------------

    def create(self, tenant: str, parent: str, metadata: Mapping[str, str]) -> KeptSession:
        """Begin a session under a new name."""
        origin = Origin(tenant, f"{SESSION}_{uuid.uuid4().hex}", parent)
        made = self._add(origin)
        made.metadata.update(metadata)
        return made

    def of_run(self, origin: Origin, answer: str) -> KeptSession:
        """Return the session of a run that begins; without a name it is that of its `answer`."""
        owner = self._owner(origin.tenant)
        parent = self._answers.get((owner, origin.parent)) or origin.parent
        named = replace(origin, session=origin.session or answer, parent=parent)
        if named.session != answer:
            self._answers.put((owner, answer), named.session)
        found = self._kept.get((owner, named.session))
        if found is None:
            return self._add(named)
        if not found.parent and named.parent != found.id:
            found.parent = named.parent
        self.used(found)
        return found

    def record(self, tenant: str, name: str, parent: str) -> TrajectoryRecorder | None:
        """Return what records the session of a sub-agent; None on another event loop, or thread."""
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is None or here is not self._loop:
            return None
        return self.of_run(Origin(tenant, name, parent), name).recorder.beside()

    def used(self, session: KeptSession) -> None:
        """Note that a session was used, and what it holds now."""
        if self._kept.get((session.owner, session.id)) is not session:
            return  # it was deleted
        self._tokens += session.recorder.tokens - session.counted
        session.counted = session.recorder.tokens
        now, used = self._clock(), {session.id}
        line = [session]
        while (parent := self._kept.get((session.owner, line[-1].parent))) is not None:
            if parent.id in used:
                break
            used.add(parent.id)
            line.append(parent)
        for each in line:
            each.used_at = now
            self._kept.move_to_end((each.owner, each.id))
        self._make_room(session)

    # -- shrinking -------------------------------------------------------------------------------

    def delete(self, session: KeptSession) -> None:
        """Forget a session and those below it."""
        for each in (*self.below(session), session):
            self._drop(each)

    def close(self) -> None:
        """Forget all."""
        self._kept.clear()
        self._tokens = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def tokens(self) -> int:
        """How many tokens are kept."""
        return self._tokens

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._kept)

    def _owner(self, tenant: str) -> str:
        return "" if self._one_owner else tenant

    def _add(self, origin: Origin) -> KeptSession:
        owner = self._owner(origin.tenant)
        made = KeptSession(origin.session, origin, owner, self._clock())
        made.recorder.watch(lambda: self.used(made))
        self._kept[owner, made.id] = made
        self.used(made)
        self._watch()
        return made

    def _make_room(self, used: KeptSession) -> None:
        """Forget the oldest sessions until the bounds hold; the one that was used stays."""
        bounds = self._bounds
        while len(self._kept) > bounds.sessions or self._tokens > bounds.tokens:
            oldest = next((each for each in self._kept.values() if each is not used), None)
            if oldest is not None:
                self._drop(oldest)
                continue
            used.recorder.lose(f"it has more than {bounds.tokens} tokens, the most that are kept")
            self._tokens, used.counted = self._tokens - used.counted, 0

    def _drop(self, session: KeptSession) -> None:
        self._tokens -= session.counted
        del self._kept[session.owner, session.id]

    def _drop_old(self) -> None:
        latest = self._clock() - self._bounds.seconds
        while self._kept and (oldest := next(iter(self._kept.values()))).used_at <= latest:
            self._drop(oldest)

    def _watch(self) -> None:
        """Forget the oldest session when its time has come, also if no request does."""
        if self._timer is None and self._kept:
            oldest = next(iter(self._kept.values()))
            left = oldest.used_at + self._bounds.seconds - self._clock()
            self._loop = asyncio.get_running_loop()
            self._timer = self._loop.call_later(max(left, 1.0), self._look)

    def _look(self) -> None:
        self._timer = None
        self._drop_old()
        self._watch()
