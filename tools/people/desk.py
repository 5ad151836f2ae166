"""The life of items: opening, waiting runs, callbacks, listeners, answers and deadlines."""

import asyncio
import inspect
import logging
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from caesura.stores.leases import RENEW_SECONDS
from caesura.tools.context import Scope, current
from caesura.tools.loops import asking_loop, on_loop
from caesura.tools.people.pending import (
    OPEN,
    Kind,
    NoAnswer,
    NotPending,
    Pending,
    State,
    checked_answer,
    key_of,
)
from caesura.tools.people.store import Store
from caesura.tools.tool import in_thread

Reply = str | bool | None
Callback = Callable[[Pending], Reply | Awaitable[Reply]]


async def called(callback: Callback, item: Pending) -> Reply:
    """Return the callback's answer; a function that is not async runs in a thread.

    One that is async runs on the event loop of the run that asks.
    A cancellation abandons the thread. Raises what the callback raises.
    """
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004 - an object whose call is async
    ):
        asks = cast(Callable[[Pending], Awaitable[Reply]], callback)
        return await on_loop(asking_loop(), lambda: asks(item))
    result = await in_thread(callback, item)
    answer: Reply = await result if inspect.isawaitable(result) else result
    return answer


MAX_BEHIND = 1000
"""A listener is dropped once this many items wait for it."""


class Waiting:
    """An open item, and the runs of this process that wait for it."""

    def __init__(self, item: Pending, identity: str) -> None:
        self.item = item
        self.identity = identity
        self.runs = 0
        self.calling: asyncio.Task[None] | None = None
        """The task of a callback that is answering the item."""
        self._settled: asyncio.Future[Pending] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """Whether the item is still open."""
        return not self._settled.done()

    @property
    def is_settled(self) -> bool:
        """Whether the item is settled and has not failed."""
        return self._settled.done() and self._settled.exception() is None

    async def result(self) -> Pending:
        """Return the settled item; raises the error given to `fail`."""
        # Shielded: one of several runs may be cancelled.
        return await asyncio.shield(self._settled)

    def settle(self, item: Pending) -> None:
        """Continue the waiting runs."""
        self.item = item
        if self.is_open:
            self._settled.set_result(item)

    def fail(self, error: Exception) -> None:
        """Fail the waiting runs."""
        if self.is_open:
            self._settled.set_exception(error)
            self._settled.exception()  # marks it as retrieved where no run waits any more


class Listeners:
    """Listeners to every change of an item."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[Pending | None]] = set()

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[Pending | None]]:
        """Yield a queue of items; None marks its end."""
        queue: asyncio.Queue[Pending | None] = asyncio.Queue()
        self._queues.add(queue)
        try:
            yield queue
        finally:
            self._queues.discard(queue)

    def tell(self, item: Pending) -> None:
        """Send the item to every listener."""
        for queue in list(self._queues):
            if queue.qsize() < MAX_BEHIND:
                queue.put_nowait(item)
            else:
                self._end(queue)

    def end(self) -> None:
        """End all listeners' queues."""
        for queue in list(self._queues):
            self._end(queue)

    @staticmethod
    def ids_in(queue: asyncio.Queue[Pending | None]) -> set[str]:
        """Return the ids of the items in the queue, without removing them."""
        waiting = [queue.get_nowait() for _ in range(queue.qsize())]
        for each in waiting:
            queue.put_nowait(each)
        return {each.id for each in waiting if each is not None}

    def _end(self, queue: asyncio.Queue[Pending | None]) -> None:
        self._queues.discard(queue)
        queue.put_nowait(None)

    @staticmethod
    async def read(
        queue: asyncio.Queue[Pending | None], first: Sequence[Pending]
    ) -> AsyncIterator[Pending]:
        """Yield these items, and then the queue's, until its end."""
        for known in first:
            yield known
        while (item := await queue.get()) is not None:
            yield item


T = TypeVar("T")

logger = logging.getLogger(__name__)

LONGEST_TIMER_SECONDS = 86_400.0
POLL_SECONDS = 1.0
"""How often answers that other processes took are looked for, while runs wait."""


class Desk:
    """Keeps items in a store, lets runs wait for them, and settles each exactly once.

    clock: seconds since 1970. The desk belongs to the event loop that first uses it, until that
    loop is closed.
    """

    def __init__(
        self,
        store: Store,
        keep_seconds: float,
        clock: Callable[[], float],
        most_per_tenant: int,
    ) -> None:
        """Create it; the clients of one API key may leave `most_per_tenant` items open."""
        self._most_per_tenant = most_per_tenant
        self.store = store
        self.listeners = Listeners()
        self.waiting: dict[str, Waiting] = {}
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._leaving = False
        self._outliving: set[str] = set()
        self._beating: asyncio.Task[None] | None = None

    def outlive(self, session_id: str) -> None:
        """Leave the items of a session open when its runs are cancelled: another process asks on.

        The answers to them stay too.
        """
        self._outliving.add(session_id)

    def new(self, kind: Kind, tool: str, deadline_seconds: float) -> Pending:
        """Return a new item for the current call, or for none outside of a call."""
        try:
            context = current()
        except LookupError:
            session_id = conversation = ""
        else:
            session_id, conversation = context.scope.session_id, context.conversation
        now = self._clock()
        return Pending(
            id=secrets.token_hex(8),
            kind=kind,
            session=session_id,
            conversation=conversation,
            tool=tool,
            question="",
            arguments="",
            options=(),
            created=now,
            deadline=now + deadline_seconds,
            default=None,
            tenant=_tenant(),
        )

    async def settled(self, item: Pending, about: Any, callback: Callback | None) -> Pending:
        """Wait until an item, or an earlier one for the same question, is settled; return it.

        about: the subject, as JSON-able data. Raises NoAnswer where no question can be asked.
        """
        self._enter()
        identity = key_of(item, about, _asker())
        await self._follow_session()
        async with self._opening:
            waiting = self._shared(identity)
            if waiting is None:
                item = await self._claim(item, identity)
                if item.state != "open":
                    return item
                waiting = self._open(item, identity, callback)
        waiting.runs += 1
        try:
            async with asyncio.timeout(max(0.0, waiting.item.deadline - self._clock())):
                return await waiting.result()
        except TimeoutError:
            return await self._shielded(self._expire(waiting))
        finally:
            waiting.runs -= 1
            if not waiting.runs:
                await self._release(waiting)

    async def settle(self, item_id: str, **said: Any) -> Pending:
        """Settle an item with an answer, once. said: `answer`, `approved`, `who`.

        Raises NotPending where it is already settled.
        """
        # Shielded: an answer in the file must reach the run even if its sender disconnects.
        return await self._shielded(self._settle(item_id, said))

    async def sweep(self) -> None:
        """Find orphaned and expired items, and set the timer for the next deadline."""
        now = self._clock()
        for item in await self.do(self.store.sweep, now, now - self._keep_seconds):
            self.listeners.tell(item)
        soonest = await self.do(self.store.next_deadline)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if soonest is not None and not self._leaving:
            seconds = min(max(0.0, soonest - now), LONGEST_TIMER_SECONDS)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, lambda: self._spawn(self.sweep()))

    async def leave(self) -> None:
        """Make runs that end from now on leave their items open for the next process."""
        self._leaving = True
        self._stop_beating()
        self.listeners.end()
        if self._timer is not None:
            self._timer.cancel()
        if self.waiting:
            await self.do(self.store.leave)

    async def aclose(self) -> None:
        """Leave, fail the runs that still wait, and close the store. May be called twice."""
        await self.leave()
        for waiting in list(self.waiting.values()):
            waiting.fail(NoAnswer("questions to people are closed"))
        while tasks := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(tasks)
        await asyncio.to_thread(self.store.close)
        self._leaving = False

    async def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run blocking work in a thread; a cancellation waits for its end."""
        return await self._shielded(asyncio.to_thread(work, *arguments))

    # -- within ----------------------------------------------------------------------------------

    def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            # The runs that waited in a closed loop have ended.
            self._loop, self._opening, self.waiting = loop, asyncio.Lock(), {}
            self._tasks.clear()
            self._beating = None

    def _shared(self, identity: str) -> Waiting | None:
        """Return the wait that already exists for the same question, if any.

        An approval is for one call: two runs that make the same call each need an approval.
        """
        for waiting in self.waiting.values():
            same = identity and waiting.identity == identity
            if same and waiting.is_open and waiting.item.kind == "question":
                return waiting
        return None

    async def _claim(self, item: Pending, identity: str) -> Pending:
        await self._begin_beating()
        await self.sweep()
        claiming = self._spawn(asyncio.to_thread(self.store.claim, item, identity, self._refused()))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await asyncio.wait([claiming])
            if claiming.exception() is None and claiming.result().state == "open":
                await self._shielded(self._cancel(claiming.result()))
            raise

    def _refused(self) -> str:
        """Return why the current client may open no further item; empty if it may."""
        tenant = _tenant()
        its = sum(each.is_open and each.item.tenant == tenant for each in self.waiting.values())
        if not tenant or its < self._most_per_tenant:
            return ""
        return "too many questions of this API key wait for people; continue without an answer"

    async def _begin_beating(self) -> None:
        """Let other processes know that this one lives, before it has items."""
        if not self.store.is_shared or self._beating is not None or self._leaving:
            return
        self._beating = asyncio.get_running_loop().create_task(self._beat(), name="people")
        await self.do(self.store.renew, self._clock())

    def _stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        self._beating = None

    async def _beat(self) -> None:
        """Renew the lease, and hear what other processes settled, until the end."""
        loop = asyncio.get_running_loop()
        renew_at = loop.time() + RENEW_SECONDS
        while True:
            await asyncio.sleep(POLL_SECONDS if self.waiting else RENEW_SECONDS)
            try:
                if loop.time() >= renew_at:
                    renew_at = loop.time() + RENEW_SECONDS
                    await self.do(self.store.renew, self._clock())
                if self.waiting:
                    for item in await self.do(self.store.news, tuple(self.waiting)):
                        self._tell(item)
            except (sqlite3.Error, OSError) as error:  # the next call tries again
                logger.warning("pending questions cannot be read now: %s", error)

    def _open(self, item: Pending, identity: str, callback: Callback | None) -> Waiting:
        waiting = self.waiting[item.id] = Waiting(item, identity)
        self.listeners.tell(item)
        if callback is not None:
            waiting.calling = self._spawn(self._call(callback, waiting))
        return waiting

    async def _call(self, callback: Callback, waiting: Waiting) -> None:
        """Get the callback's answer; if it fails, the run gets the reason."""
        item = waiting.item
        try:
            said = await called(callback, item)
            if said is None:
                return
            if item.kind == "question":
                await self.settle(item.id, answer=checked_answer(str(said)), who="callback")
            else:
                given = isinstance(said, str) and said.strip()
                reason = checked_answer(str(said)) if given else None
                approved = said is True
                await self.settle(item.id, answer=reason, approved=approved, who="callback")
        except NotPending:
            return  # another answer came first
        except (Exception, SystemExit) as error:  # a callback must not end the server
            waiting.fail(NoAnswer(f"the question failed: {str(error) or type(error).__name__}"))

    async def _settle(self, item_id: str, said: dict[str, Any]) -> Pending:
        taken = item_id in self.waiting
        settled = await self.do(lambda: self.store.settle(item_id, "answered", taken=taken, **said))
        if settled is None:
            raise NotPending(await self._why_not(item_id))
        self._tell(settled)
        return settled

    async def _expire(self, waiting: Waiting) -> Pending:
        item = waiting.item
        expired = await self.do(
            lambda: self.store.settle(item.id, "expired", answer=item.default, taken=True)
        )
        if expired is None:  # an answer came just before the deadline
            found = await self.do(self.store.get, item.id)
            return found or replace(item, state="expired", answer=item.default)
        self._tell(expired)
        return expired

    async def _release(self, waiting: Waiting) -> None:
        """Release an item whose last waiting run has continued or given up."""
        self.waiting.pop(waiting.item.id, None)
        if waiting.calling is not None:
            waiting.calling.cancel()
        if not waiting.is_settled:
            await self._shielded(self._cancel(waiting.item))

    async def _cancel(self, item: Pending) -> None:
        if self._leaving:
            return
        state: State = "orphaned" if item.session in self._outliving else "cancelled"
        cancelled = await self.do(partial(self.store.settle, item.id, state, of=OPEN))
        if cancelled is not None:
            self._tell(cancelled)

    def _tell(self, item: Pending) -> None:
        if (waiting := self.waiting.get(item.id)) is not None:
            waiting.settle(item)
        self.listeners.tell(item)

    async def _why_not(self, item_id: str) -> str:
        item = await self.do(self.store.get, item_id)
        if item is None:
            return f"there is no pending item {item_id[:64]!r}"
        return f"this item is already {item.state}"

    async def _follow_session(self) -> None:
        """Finish the current call's session in the store when that session ends."""
        try:
            scope: Scope = current().scope
        except LookupError:
            return

        async def session_id() -> str:
            return scope.session_id

        await scope.keep(f"people {self.store.owner}", session_id, self._finish)

    async def _finish(self, session_id: str) -> None:
        if not self._leaving and session_id not in self._outliving:
            await self.do(self.store.finish, session_id)

    async def _shielded(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(self._spawn(work))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _tenant() -> str:
    """Return the digest of the current client's API key; empty without one."""
    try:
        return current().run.tenant
    except LookupError:
        return ""


def _asker() -> str:
    """Return the identity of the current request's client; empty if unknown."""
    try:
        return current().run.asker
    except LookupError:
        return ""
