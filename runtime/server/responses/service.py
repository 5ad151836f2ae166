"""Creating responses, and finding those that run, wait for approvals or are stored."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

from caesura.runtime.journal.kept import KeptRun
from caesura.runtime.journal.record import Recorded
from caesura.runtime.server.api.chat_request import adapter_of
from caesura.runtime.server.api.decoding import with_sender
from caesura.runtime.server.http.errors import ApiError, invalid
from caesura.runtime.server.keys.access import reaches
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.keys.sender import Sender, tenant_in
from caesura.runtime.server.load.state import State
from caesura.runtime.server.responses.answer import Answer
from caesura.runtime.server.responses.items import REFERENCE
from caesura.runtime.server.responses.messages import messages_of
from caesura.runtime.server.responses.plan import History, ResponsePlan, make_plan
from caesura.runtime.server.responses.resource import FINAL, Resource
from caesura.runtime.server.responses.response import Part
from caesura.runtime.server.responses.resumed import API, Attended, Begun
from caesura.runtime.server.responses.run import (
    WHO,
    Decision,
    Decoding,
    LiveRun,
    decisions_in,
    pending_id,
)
from caesura.runtime.server.responses.schema import Continued, ResponseRequest
from caesura.runtime.server.responses.store import (
    UNUSABLE,
    NotStored,
    ResponseStore,
    Stored,
    history_of,
)
from caesura.runtime.server.responses.store.records import Item
from caesura.scheduler.media import has_media
from caesura.tools.people import NotPending
from caesura.tools.people.owner import RENEW_SECONDS

T = TypeVar("T")
LOG = logging.getLogger(__name__)


class Inputs:
    """What is stored, as requests name it. What is not within `reach` is not there."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    @property
    def store(self) -> ResponseStore:
        """The store of responses and conversations."""
        return self._store

    async def resolved(self, items: Sequence[Item], reach: Reach) -> list[Item]:
        """Return the items, with references replaced by the items that they name."""
        return [
            await self._referenced(item["id"], reach) if item["type"] == REFERENCE else item
            for item in items
        ]

    async def _referenced(self, item_id: str, reach: Reach) -> Item:
        try:
            return await self.stored(self._store.item, item_id, reach)
        except NotStored:
            message = f"input: there is no item with the id {item_id[:80]!r}."
            raise ApiError(404, message, param="input", code="item_not_found") from None

    async def history(
        self, request: Continued, recent: Mapping[str, Stored], reach: Reach
    ) -> History:
        """Return what came before a request; raise `ApiError` 404 if it is not stored."""
        if request.conversation is not None:
            items = await self.conversation_items(request.conversation, reach)
            return History(messages_of(items), items)
        if request.previous_response_id is None:
            return History()
        chain = await self._chain(request.previous_response_id, recent, reach)
        if chain[-1].resource["status"] not in FINAL:
            message = "previous_response_id names a response that is not complete: wait for it."
            raise invalid(message, "previous_response_id")
        items = [item for each in chain for item in (*each.input, *each.output)]
        return History(history_of(chain), items)

    async def _chain(
        self, response_id: str, recent: Mapping[str, Stored], reach: Reach
    ) -> list[Stored]:
        newest: list[Stored] = []
        following: str | None = response_id
        while following is not None and following in recent:
            newest.append(recent[following])
            following = newest[-1].previous
        if following is None:
            return newest[::-1]
        try:
            return [*await self.stored(self._store.chain, following, reach), *newest[::-1]]
        except NotStored as error:
            raise ApiError(
                404,
                f"There is no response with the id {error.missing[:80]!r}: it was not stored, was "
                "deleted, or is too old.",
                param="previous_response_id",
                code="previous_response_not_found",
            ) from None

    async def conversation_items(self, conversation_id: str, reach: Reach) -> list[Item]:
        """Return the items of a conversation; raise `ApiError` 404 if there is none."""
        try:
            return await self.stored(self._store.conversation_items, conversation_id, reach)
        except NotStored:
            raise ApiError(
                404,
                f"There is no conversation with the id {conversation_id[:80]!r}.",
                param="conversation",
                code="conversation_not_found",
            ) from None

    async def stored(self, work: Callable[..., T], *values: object) -> T:
        """Return the result of the store's method `work`; raise `ApiError` 503 if it fails."""
        try:
            return await asyncio.to_thread(work, *values)
        except UNUSABLE as error:
            LOG.warning("stored responses cannot be used: %s", error)
            raise ApiError(503, "Stored responses cannot be read now.", code="store") from None


MAX_PARKED = 1_000
"""The most runs that wait for approvals; the one that waits longest is ended for a new one."""
MAX_FEEDS = 64
"""The most ended background responses whose events can still be streamed."""


class Responses(Inputs):
    """The responses of one application."""

    def __init__(self, state: State, store: ResponseStore) -> None:
        super().__init__(store)
        self._state = state
        self.is_leaving = False
        """Whether the server is about to end."""
        self._live: dict[str, LiveRun] = {}
        self._parked: dict[str, LiveRun] = {}
        """Runs that wait for approvals, by the id of each approval request."""
        self._running: set[LiveRun] = set()
        """All runs, with those that are over and being stored."""
        self._stopping: set[asyncio.Task[None]] = set()
        self._beating: asyncio.Task[None] | None = None
        self._feeds: dict[str, Part] = {}
        """Ended background responses, the oldest first."""

    # -- creating --------------------------------------------------------------------------------

    async def create(
        self,
        request: ResponseRequest,
        given: Sequence[Item],
        headers: Mapping[str, str],
        recent: Mapping[str, Stored] | None = None,
    ) -> tuple[Part, LiveRun]:
        """Start a response to the items `given`; return it and the run that makes it.

        `recent` are responses that only this client can continue, by id. Raises `ApiError`.
        """
        started = time.monotonic()
        reach = self.reach(headers)
        items = await self.resolved(given, reach)
        history = await self.history(request, recent or {}, reach)
        if (found := await self._resumed(request, items, headers)) is not None:
            return found
        plan = await self._planned(request, items, history)
        part = self._part(self._resource(request), items, history, plan, tenant_in(headers))
        sender = Sender.of(plan.run.user, headers, part.id)
        part.kept = self._journaled(part, history, plan, sender)
        return part, await self._start(part, plan, history, sender, headers, started)

    def _journaled(
        self, part: Part, history: History, plan: ResponsePlan, sender: Sender
    ) -> KeptRun | None:
        """Begin the journal of a run whose client can come back for its response."""
        writer, request = self._state.journal, part.answer.resource.request
        # Tokens alone bring back neither their probabilities nor the pictures before them.
        lost = plan.run.sampling.logprobs is not None or has_media(plan.run.messages)
        if writer is None or not request.stored or lost:
            return None
        begun = Begun(Attended.of(part), history, sender)
        return KeptRun(writer, writer.begin(part.id, begun.told()), self._state.people)

    async def resume(self, records: Sequence[Recorded]) -> None:
        """Go on with the runs of responses among those that an ended process has left."""
        for record in records:
            if record.about.get("api") != API or self._state.journal is None:
                continue
            journal = self._state.journal.resume(record)
            try:
                kept = KeptRun(self._state.journal, journal, self._state.people, record)
                await self._begin_again(Begun.read(record), kept)
            except Exception as error:  # whatever it holds, the server starts and others go on
                LOG.warning("the response %s does not go on: %r", record.run, error)
                journal.finish()

    def start(self) -> None:
        """Let other servers over the same store know that this one lives."""
        self._beating = asyncio.create_task(self._beat(), name="responses")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(*UNUSABLE):  # the next use of the store says so
                await asyncio.to_thread(self._store.renew)

    def go_on(self, records: Sequence[Recorded]) -> None:
        """Go on with runs that another server has left, in the background."""
        self._in_background(self.resume(records))

    async def _begin_again(self, begun: Begun, kept: KeptRun) -> None:
        first = begun.first
        plan = await self._planned(first.request, first.items, begun.history)
        resource = first.resource(self._state.engine.default_sampling)
        part = self._part(resource, first.items, begun.history, plan, begun.sender.origin.tenant)
        part.kept = kept
        await self._start(part, plan, begun.history, begun.sender, {}, 0.0)

    def _attended(self, run: LiveRun, attended: Attended) -> Part:
        """Return the response in which a run went on, as it was before the server ended."""
        resource = attended.resource(self._state.engine.default_sampling)
        answer = run.part.answer.following(resource)
        return self._following(run, answer, attended.items, attended.covers_previous)

    def _following(self, run: LiveRun, answer: Answer, items: Sequence[Item], covers: bool) -> Part:
        """Return the next response of a run that waits for approvals."""
        before = run.part
        history = before.history if covers else ()
        part = Part(
            answer,
            items,
            history=history,
            covers_previous=covers,
            kept=before.kept,
            tenant=before.tenant,
        )
        self._unpark(run)
        self._live[part.id] = run
        return part

    async def prepare(
        self,
        request: ResponseRequest,
        given: Sequence[Item],
        headers: Mapping[str, str],
        recent: Mapping[str, Stored] | None = None,
    ) -> tuple[Part, None]:
        """Keep a request as a response without output, so that another one can continue it.

        The parameters are those of `create`.
        """
        reach = self.reach(headers)
        items = await self.resolved(given, reach)
        history = await self.history(request, recent or {}, reach)
        plan = await self._planned(request, items, history)
        part = self._part(self._resource(request), items, history, plan, tenant_in(headers))
        await part.end(partial(part.answer.skip, time.time()), plan.own, self._save)
        return part, None

    async def _planned(
        self, request: ResponseRequest, items: Sequence[Item], history: History
    ) -> ResponsePlan:
        state = self._state
        about = (state.engine, state.tools, state.limits, state.people)
        return await asyncio.to_thread(make_plan, request, items, history, *about)

    def _part(
        self,
        resource: Resource,
        items: Sequence[Item],
        history: History,
        plan: ResponsePlan,
        tenant: str,
    ) -> Part:
        answer = Answer(resource, plan.shown)
        return Part(answer, items, plan.listed, history=history.messages, tenant=tenant)

    def _resource(self, request: ResponseRequest) -> Resource:
        return Resource(request, self._state.engine.default_sampling)

    async def _start(
        self,
        part: Part,
        plan: ResponsePlan,
        history: History,
        sender: Sender,
        headers: Mapping[str, str],
        started: float,
    ) -> LiveRun:
        place: AbstractContextManager[None] = nullcontext()
        try:
            if part.kept is None or not part.kept.is_resumed:
                place = self._enter(headers)
            decoding = Decoding(self._state, with_sender(plan.run, sender), part, headers)
        except BaseException:  # a run that was refused must not begin in the next process
            place.__exit__(None, None, None)
            if part.kept is not None:
                part.kept.journal.finish()
            raise
        first_token = self._state.metrics.first_token

        def on_output() -> None:
            nonlocal started
            if started:
                first_token.observe(time.monotonic() - started)
                started = 0.0

        run = LiveRun(
            part,
            decoding.events(),
            attended=self._attended,
            decide=self._decide,
            history=history.messages,
            own=plan.own,
            shown=plan.shown,
            place=place,
            save=self._save,
            forget=self._forget,
            parked=self._park,
            close=decoding.close,
            on_output=on_output,
        )
        decoding.run = run
        run.when_ended(self._ended)
        self._running.add(run)
        self._live[part.id] = run
        if part.kept is not None:
            part.kept.journal.on_taken_over = partial(self._leave, run)
        if part.answer.resource.request.background:
            await self._write(part.stored())
            part.begin()
        return run

    def _leave(self, run: LiveRun) -> None:
        self._in_background(run.leave())

    def _enter(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Take a place among the requests under way, until the place's context is left."""
        place = self._state.gate.enter(headers)
        place.__enter__()
        return place

    async def _resumed(
        self, request: ResponseRequest, items: Sequence[Item], headers: Mapping[str, str]
    ) -> tuple[Part, LiveRun] | None:
        """Go on with a run whose approvals the items decide; return None if they decide none."""
        decisions = decisions_in(items)
        reach = self.reach(headers)
        named = {self._parked[key] for key in decisions if key in self._parked}
        runs = {run for run in named if reaches(reach, run.part.tenant)}
        if not runs:
            for key, item in decisions.items():
                if item["approve"]:
                    raise invalid(
                        f"input: the approval request {key[:80]!r} does not wait any more: its "
                        "call was decided, expired or given up.",
                        "input",
                        "approval_not_pending",
                    )
            return None
        if len(runs) > 1 or items[-1]["type"] != "mcp_approval_response":
            message = "input: send the decisions about one response, and nothing behind them."
            raise invalid(message, "input")
        run = runs.pop()
        adapter_of(request.model, self._state.engine)
        place = self._enter(headers)
        covers = request.previous_response_id == run.part.id
        answer = run.part.answer.following(self._resource(request))
        part = self._following(run, answer, items, covers)
        run.attend(part, place)
        who = self._state.door.signature(headers, WHO)
        for key in run.requests:
            if key in decisions:
                said, reason = decisions[key]["approve"], decisions[key].get("reason") or ""
                await run.decide(Decision(key, said, reason, who))
        return part, run

    async def _decide(self, decision: Decision) -> bool:
        """Tell the people of a decision; return False if another person decided first."""
        assert self._state.people is not None
        item = pending_id(decision.request_id)
        try:
            await self._state.people.decide(item, decision.approve, decision.reason, decision.who)
        except NotPending:
            return False
        return True

    # -- finding ---------------------------------------------------------------------------------

    def reach(self, headers: Mapping[str, str]) -> Reach:
        """Return whose responses and conversations a request may use."""
        return self._state.door.reach(headers)

    def run_of(self, response_id: str, reach: Reach) -> LiveRun | None:
        """Return the run that makes a response, or None if there is none within reach."""
        run = self._live.get(response_id)
        return run if run is not None and reaches(reach, run.part.tenant) else None

    def with_events(self, response_id: str, reach: Reach) -> Part | None:
        """Return a response whose events can be streamed again, or None."""
        run = self.run_of(response_id, reach)
        if run is not None and run.part.can_be_read_again:
            return run.part
        part = self._feeds.get(response_id)
        return part if part is not None and reaches(reach, part.tenant) else None

    async def get(self, response_id: str, reach: Reach) -> Stored:
        """Return a response in its present state; raise `ApiError` 404 if there is none."""
        run = self.run_of(response_id, reach)
        if run is not None and run.part.answer.resource.request.stored:
            return run.part.stored()
        try:
            return await self.stored(self._store.get, response_id, reach)
        except NotStored:
            raise _no_response(response_id) from None

    async def left(self, part: Part, run: LiveRun) -> None:
        """Cancel a response whose client has left, unless the server leaves and it can go on."""
        if not (self.is_leaving and part.kept is not None):
            await run.cancel()

    async def delete(self, response_id: str, reach: Reach) -> None:
        """Delete a response, and cancel it if it is under way; raise `ApiError` 404."""
        run = self.run_of(response_id, reach)
        if run is not None:
            await run.cancel()
        if self.with_events(response_id, reach) is not None:
            self._feeds.pop(response_id, None)
        try:
            await self.stored(self._store.delete, response_id, reach)
        except NotStored:
            raise _no_response(response_id) from None

    async def leave(self, sessions: Collection[str] | None = None) -> None:
        """Break off the runs that a later process can go on with; by default all of them."""
        runs = {*self._live.values(), *self._parked.values()}
        chosen = {run for run in runs if sessions is None or run.session in sessions}
        await asyncio.gather(*(run.leave() for run in chosen if run.goes_on))

    async def aclose(self) -> None:
        """End the runs under way and those that wait for approvals, and close the store.

        Those with a journal go on in the next process.
        """
        if self._beating is not None:
            self._beating.cancel()
        runs = {*self._live.values(), *self._parked.values()}
        await asyncio.gather(*(run.leave() for run in runs))
        await asyncio.gather(*(run.ended() for run in self._running))  # some are being stored
        await asyncio.to_thread(self._store.close)

    # -- the end of a response -------------------------------------------------------------------

    async def _forget(self, part: Part) -> None:
        self._live.pop(part.id, None)

    async def _save(self, part: Part) -> None:
        """Keep a response that has ended; its client gets it even if it cannot be stored."""
        await self._forget(part)
        request = part.answer.resource.request
        if part.can_be_read_again:
            self._feeds[part.id] = part
            while len(self._feeds) > MAX_FEEDS:
                del self._feeds[next(iter(self._feeds))]
        if request.stored:
            await self._write(part.stored())

    async def _write(self, stored: Stored) -> None:
        try:
            await asyncio.to_thread(self._store.put, stored)
        except UNUSABLE as error:
            LOG.warning("the response %s is not stored: %s", stored.id, error)

    def _park(self, run: LiveRun) -> None:
        for key in run.requests:
            self._parked[key] = run
        while len(self._parked) > MAX_PARKED:
            oldest = next(iter(self._parked.values()))
            self._unpark(oldest)
            self._in_background(oldest.stop())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _ended(self, run: LiveRun) -> None:
        self._running.discard(run)
        self._unpark(run)
        for key in [key for key, each in self._live.items() if each is run]:
            del self._live[key]

    def _unpark(self, run: LiveRun) -> None:
        for key in [key for key, each in self._parked.items() if each is run]:
            del self._parked[key]


def _no_response(response_id: str) -> ApiError:
    return ApiError(
        404,
        f"There is no response with the id {response_id[:80]!r}.",
        param="response_id",
        code="response_not_found",
    )
