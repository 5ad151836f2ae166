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
from caesura.scheduler.programs import Origin

SESSION = "sess"
"""How the ids begin that a server gives to sessions."""
MAX_ANSWERS = 100_000
"""The answers whose session is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBounds:
    """How much is kept; of each key the sessions go first that were not used for the longest time.

    Where the whole is full, the key that holds the most gives way.
    """

    sessions: int = 10_000
    tokens: int = 100_000_000
    """Of all sessions together; a token takes 4 bytes, a sampled one 8."""
    key_sessions: int | None = None
    """The most sessions of one key, where there are keys; None: half of all."""
    key_tokens: int | None = None
    """The most tokens of one key's sessions; None: half of all."""
    seconds: float = 86_400.0
    """How long a session is kept behind its last request."""

    def of_key(self) -> tuple[int, int]:
        """Return how many sessions one key may have, and how many tokens."""
        sessions, tokens = self.key_sessions, self.key_tokens
        return (
            max(self.sessions // 2, 1) if sessions is None else sessions,
            max(self.tokens // 2, 1) if tokens is None else tokens,
        )


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
        self.answers: set[str] = set()
        """The ids of answers by which it is found."""

    def trajectory(self) -> Trajectory:
        """Return all that was recorded. Raises `UsageError` if tokens are not known."""
        made = self.recorder.trajectory()
        rewards, metadata = dict(self.rewards), dict(self.metadata)
        return replace(made, parent=self.parent or None, rewards=rewards, metadata=metadata)


class _Share:
    """The sessions of one owner."""

    def __init__(self) -> None:
        self.sessions: OrderedDict[str, KeptSession] = OrderedDict()
        """By name, those that were used last at the end."""
        self.children: dict[str, dict[str, KeptSession]] = {}
        """By the name of their parent, each by its own."""
        self.answers: OrderedDict[str, str] = OrderedDict()
        """The names of sessions by the id of an answer, those that were asked for last at the end.
        """
        self.tokens = 0

    def of_answer(self, answer: str) -> str:
        """Return the name of the session of an answer, or an empty text."""
        if answer in self.answers:
            self.answers.move_to_end(answer)
        return self.answers.get(answer, "")

    def add_answer(self, answer: str, session: KeptSession) -> None:
        if answer in self.answers:
            self.sessions[self.answers[answer]].answers.discard(answer)
        self.answers[answer] = session.id
        session.answers.add(answer)

    def drop_answer(self) -> None:
        """Forget the answer that was not asked for for the longest time."""
        answer, name = self.answers.popitem(last=False)
        self.sessions[name].answers.discard(answer)

    def hang(self, session: KeptSession, parent: str) -> None:
        """Put a session below a parent, which need not be there."""
        self._unhang(session)
        session.parent = parent
        if parent:
            self.children.setdefault(parent, {})[session.id] = session

    def drop(self, session: KeptSession) -> None:
        del self.sessions[session.id]
        self.tokens -= session.counted
        self._unhang(session)
        for answer in session.answers:
            del self.answers[answer]

    def _unhang(self, session: KeptSession) -> None:
        beside = self.children.get(session.parent, {})
        if beside.pop(session.id, None) is not None and not beside:
            del self.children[session.parent]

    def oldest(self, but: KeptSession) -> KeptSession | None:
        """Return the session that was not used for the longest time, but for one."""
        return next((each for each in self.sessions.values() if each is not but), None)


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
        own = (bounds.sessions, bounds.tokens) if one_owner else bounds.of_key()
        self._key_sessions, self._key_tokens = own
        self._one_owner = one_owner
        self._clock = clock
        self._shares: dict[str, _Share] = {}
        """By owner; one without sessions is not there."""
        self._kept: OrderedDict[tuple[str, str], KeptSession] = OrderedDict()
        """All by owner and name, those that were used last at the end."""
        self._answers = 0
        """How many answers all have."""
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
        share = self._shares.get(self._owner(tenant))
        if share is not None:
            for each in (name, share.of_answer(name)):
                if (found := share.sessions.get(each)) is not None:
                    return found
        if not everybodys:
            return None
        all_of = [each.sessions[name] for each in self._shares.values() if name in each.sessions]
        return max(all_of, key=lambda each: each.used_at, default=None)

    def name_of(self, answer: str, tenant: str) -> str:
        """Return the name of the session of an answer, or an empty text."""
        found = self.find(answer, tenant)
        return "" if found is None else found.id

    def below(self, session: KeptSession) -> list[KeptSession]:
        """Return the sessions that a session has started, and those that they have, in order."""
        share = self._shares.get(session.owner)
        if share is None:
            return []
        found, names = [session], {session.id}
        for parent in found:
            children = share.children.get(parent.id, {}).values()
            for each in sorted(children, key=lambda each: each.created_at):
                if each.id not in names:
                    names.add(each.id)
                    found.append(each)
        return found[1:]

    # -- growing ---------------------------------------------------------------------------------

    def create(
        self, tenant: str, parent: str, metadata: Mapping[str, str], name: str | None = None
    ) -> KeptSession:
        """Begin a session under a new name, or under a given one; one that is there goes on."""
        origin = Origin(tenant, name or f"{SESSION}_{uuid.uuid4().hex}", parent)
        found = self._kept.get((self._owner(tenant), origin.session))
        made = self._add(origin) if found is None else found
        made.metadata.update(metadata)
        return made

    def of_run(self, origin: Origin, answer: str) -> KeptSession:
        """Return the session of a run that begins; without a name it is that of its `answer`."""
        owner = self._owner(origin.tenant)
        share = self._shares.get(owner)
        parent = (share and share.of_answer(origin.parent)) or origin.parent
        named = replace(origin, session=origin.session or answer, parent=parent)
        found = None if share is None else share.sessions.get(named.session)
        if found is None:
            found = self._add(named)
        else:
            if not found.parent and named.parent != found.id:
                self._shares[owner].hang(found, named.parent)
            self.used(found)
        if named.session != answer:
            self._answered(answer, found)
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
        share = self._shares[session.owner]
        self._count(share, session)
        now, used = self._clock(), {session.id}
        line = [session]
        while (parent := share.sessions.get(line[-1].parent)) is not None:
            if parent.id in used:
                break
            used.add(parent.id)
            line.append(parent)
        for each in line:
            each.used_at = now
            share.sessions.move_to_end(each.id)
            self._kept.move_to_end((each.owner, each.id))
        self._make_room(share, session)

    # -- shrinking -------------------------------------------------------------------------------

    def delete(self, session: KeptSession) -> None:
        """Forget a session and those below it."""
        for each in (*self.below(session), session):
            self._drop(each)

    def close(self) -> None:
        """Forget all."""
        for each in [*self._kept.values()]:
            self._drop(each)
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
        share = self._shares.setdefault(owner, _Share())
        share.sessions[made.id] = self._kept[owner, made.id] = made
        share.hang(made, made.parent)
        self.used(made)
        self._watch()
        return made

    def _count(self, share: _Share, session: KeptSession) -> None:
        """Note how many tokens a session holds now."""
        more = session.recorder.tokens - session.counted
        session.counted += more
        share.tokens += more
        self._tokens += more

    def _answered(self, answer: str, session: KeptSession) -> None:
        """Remember the session of an answer."""
        share = self._shares[session.owner]
        self._answers += answer not in share.answers
        share.add_answer(answer, session)
        if self._answers > MAX_ANSWERS:
            max(self._shares.values(), key=lambda each: len(each.answers)).drop_answer()
            self._answers -= 1

    def _make_room(self, share: _Share, used: KeptSession) -> None:
        """Forget sessions until the bounds hold: the share's own, then those of all.

        Of several keys, the one that holds the most gives way. The session that was used stays, and
        loses its tokens where its key has no other to give.
        """
        bounds, most = self._bounds, self._key_tokens
        while len(share.sessions) > self._key_sessions:
            self._give(share, used)
        while share.tokens > most:
            of = "" if self._one_owner else " of one key"
            self._give(share, used, f"it has more than {most} tokens, the most that are kept{of}")
        while len(self._kept) > bounds.sessions:
            self._give(self._largest(lambda each: len(each.sessions), used), used)
        while self._tokens > bounds.tokens:
            why = f"all keys have more than {bounds.tokens} tokens, the most that are kept, and its"
            self._give(self._largest(lambda each: each.tokens), used, f"{why} key has the most")

    def _largest(self, size: Callable[[_Share], int], used: KeptSession | None = None) -> _Share:
        """Return the share of the greatest size, of several the one with the oldest session.

        One that has only the session that was `used` comes last.
        """

        def rank(share: _Share) -> tuple[bool, int, float]:
            oldest = next(iter(share.sessions.values()))
            others = used is None or share.oldest(used) is not None
            return others, size(share), -oldest.used_at

        return max(self._shares.values(), key=rank)

    def _give(self, share: _Share, used: KeptSession, why: str = "") -> None:
        """Forget a share's oldest session; where it has only the one that was used, its tokens."""
        oldest = share.oldest(used)
        if oldest is not None:
            self._drop(oldest)
            return
        used.recorder.lose(why)
        self._count(share, used)

    def _drop(self, session: KeptSession) -> None:
        share = self._shares[session.owner]
        share.drop(session)
        self._tokens -= session.counted
        self._answers -= len(session.answers)
        if not share.sessions:
            del self._shares[session.owner]
        del self._kept[session.owner, session.id]
        # A run may still be under way, which holds the recorder.
        session.recorder.watch(None)
        session.recorder.lose("it was deleted")

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
