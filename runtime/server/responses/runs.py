"""The runs of one application's responses: those under way, and those that wait for approvals."""

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any

from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.keys.access import reaches
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.responses.library import Library
from caesura.runtime.server.responses.response import Ending, Part
from caesura.runtime.server.responses.run import LiveRun
from caesura.scheduler.messages import Message

MAX_PARKED = 1_000
"""The most runs that wait for approvals; the one that waits longest is ended for a new one."""
MAX_FEEDS = 64
"""The most ended background responses whose events can still be streamed."""


class LiveRuns:
    """Finds runs by the ids of their responses and approval requests, and ends responses."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._live: dict[str, LiveRun] = {}
        self._parked: dict[str, LiveRun] = {}
        """Runs that wait for approvals, by the id of each approval request."""
        self._running: set[LiveRun] = set()
        """All runs, with those that are over and being stored."""
        self._stopping: set[asyncio.Task[None]] = set()
        self._feeds: dict[str, Part] = {}
        """Ended background responses, the oldest first."""

    # -- finding ---------------------------------------------------------------------------------

    def of(self, response_id: str, reach: Reach) -> LiveRun | None:
        """Return the run that makes a response, or None if there is none within reach."""
        run = self._live.get(response_id)
        return run if run is not None and reaches(reach, run.part.tenant) else None

    def with_events(self, response_id: str, reach: Reach) -> Part | None:
        """Return a response whose events can be streamed again, or None."""
        run = self.of(response_id, reach)
        if run is not None and run.part.can_be_read_again:
            return run.part
        part = self._feeds.get(response_id)
        return part if part is not None and reaches(reach, part.tenant) else None

    def waiting_for(self, requests: Iterable[str], reach: Reach) -> set[LiveRun]:
        """Return the runs within reach that wait for one of these approval requests."""
        named = {self._parked[key] for key in requests if key in self._parked}
        return {run for run in named if reaches(reach, run.part.tenant)}

    # -- what a run tells ------------------------------------------------------------------------

    def begun(self, run: LiveRun) -> None:
        """Take up a run with its first response."""
        self._running.add(run)
        self._live[run.part.id] = run
        if run.part.journaled is not None:
            leave = run.leave
            run.part.journaled.journal.on_taken_over = lambda: self.in_background(leave())

    def attended(self, run: LiveRun, part: Part) -> None:
        """Note that a run that waited goes on as the response `part`."""
        self._unpark(run)
        self._live[part.id] = run

    def parked(self, run: LiveRun) -> None:
        """Note that a run waits for approvals."""
        for key in run.requests:
            self._parked[key] = run
        while len(self._parked) > MAX_PARKED:
            oldest = next(iter(self._parked.values()))
            self._unpark(oldest)
            self.in_background(oldest.stop())

    def ended(self, run: LiveRun) -> None:
        """Forget a run that is over."""
        self._running.discard(run)
        self._unpark(run)
        for key in [key for key, each in self._live.items() if each is run]:
            del self._live[key]

    async def end(self, part: Part, ending: Ending, messages: Sequence[Message]) -> None:
        """End a response whose run has made these messages: keep it, then send its last events.

        A client learns of a response that fails before it has begun by an error with a status, so
        nothing of it is kept.
        """
        fails_first = isinstance(ending, ApiError) and not part.answer.has_begun
        events = part.last_events(ending, messages)
        self._live.pop(part.id, None)
        if not fails_first:
            await self._keep(part)
        part.feed.push(events)
        error = ending if isinstance(ending, ApiError) else None
        part.feed.end(error, failed_first=fails_first)

    async def _keep(self, part: Part) -> None:
        if part.can_be_read_again:
            self._feeds[part.id] = part
            while len(self._feeds) > MAX_FEEDS:
                del self._feeds[next(iter(self._feeds))]
        if part.answer.resource.request.stored:
            await self._library.put(part.stored())

    def _unpark(self, run: LiveRun) -> None:
        for key in [key for key, each in self._parked.items() if each is run]:
            del self._parked[key]

    # -- ending ----------------------------------------------------------------------------------

    async def delete(self, response_id: str, reach: Reach) -> None:
        """Cancel a response that is under way, and forget its events."""
        run = self.of(response_id, reach)
        if run is not None:
            await run.cancel()
        if self.with_events(response_id, reach) is not None:
            self._feeds.pop(response_id, None)

    async def leave(self, session_ids: Collection[str] | None = None) -> None:
        """Break off the runs that a later process can go on with; by default all of them."""
        runs = {*self._live.values(), *self._parked.values()}
        chosen = {run for run in runs if session_ids is None or run.session_id in session_ids}
        await asyncio.gather(*(run.leave() for run in chosen if run.goes_on))

    async def aclose(self) -> None:
        """End the runs under way and those that wait; those with a journal can go on elsewhere."""
        runs = {*self._live.values(), *self._parked.values()}
        await asyncio.gather(*(run.leave() for run in runs))
        await asyncio.gather(*(run.over() for run in self._running))  # some are being stored

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work in a task of its own."""
        task = asyncio.create_task(work)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
