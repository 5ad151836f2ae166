"""Creating responses, and finding those that run, wait for approvals or are stored."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar

from caesura.runtime.errors import UsageError
from caesura.runtime.server.chat.plan import check_model
from caesura.runtime.server.http.errors import ApiError, invalid
from caesura.runtime.server.responses.items.given import REFERENCE, Item
from caesura.runtime.server.responses.items.messages import messages_of
from caesura.runtime.server.responses.request.plan import History, ResponsePlan, make_plan
from caesura.runtime.server.responses.request.schema import Continued, ResponseRequest
from caesura.runtime.server.responses.run.answer import Answer
from caesura.runtime.server.responses.run.decoding import Decoding
from caesura.runtime.server.responses.run.live import LiveRun, Part, pending_id
from caesura.runtime.server.responses.run.resource import FINAL, Resource
from caesura.runtime.server.responses.store import NotStored, Store, Stored, history_of
from caesura.runtime.server.state import State
from caesura.tools.people import NotPending

T = TypeVar("T")

LOG = logging.getLogger(__name__)

MAX_PARKED = 1_000
"""The most runs that wait for approvals; the one that waits longest is ended for a new one."""
MAX_FEEDS = 64
"""The most ended background responses whose events can still be streamed."""
WHO = "mcp_approval_response"


class Responses:
    """The responses of one application."""

    def __init__(self, state: State, store: Store) -> None:
        self._state = state
        self._store = store
        self._live: dict[str, LiveRun] = {}
        self._parked: dict[str, LiveRun] = {}
        """Runs that wait for approvals, by the id of each approval request."""
        self._stopping: set[asyncio.Task[None]] = set()
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
        items = await self.resolved(given)
        history = await self.history(request, recent or {})
        if (found := await self._resumed(request, items)) is not None:
            return found
        plan = await self._planned(request, items, history)
        part = self._part(request, items, history, plan)
        return part, await self._start(part, plan, history, headers, started)

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
        items = await self.resolved(given)
        history = await self.history(request, recent or {})
        plan = await self._planned(request, items, history)
        part = self._part(request, items, history, plan)
        await part.end(partial(part.answer.skip, time.time()), plan.own, self._save)
        return part, None

    async def _planned(
        self, request: ResponseRequest, items: Sequence[Item], history: History
    ) -> ResponsePlan:
        state = self._state
        about = (state.engine.model, state.tools, state.limits, state.people)
        return await asyncio.to_thread(make_plan, request, items, history, *about)

    def _part(
        self, request: ResponseRequest, items: Sequence[Item], history: History, plan: ResponsePlan
    ) -> Part:
        answer = Answer(self._resource(request), plan.shown)
        return Part(answer, items, plan.listed, history=history.messages)

    def _resource(self, request: ResponseRequest) -> Resource:
        engine = self._state.engine
        return Resource(request, engine.model, engine.default_sampling)

    async def _start(
        self,
        part: Part,
        plan: ResponsePlan,
        history: History,
        headers: Mapping[str, str],
        started: float,
    ) -> LiveRun:
        place = self._enter()
        try:
            decoding = Decoding(self._state, plan.run, part, headers)
        except BaseException:
            place.__exit__(None, None, None)
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
        run.when_ended(self._unpark)
        self._live[part.id] = run
        if part.answer.resource.request.background:
            await self._write(part.stored())
            part.begin()
        return run

    def _enter(self) -> AbstractContextManager[None]:
        """Take a place among the requests under way, until the place's context is left."""
        place = self._state.gate.enter()
        place.__enter__()
        return place

    async def _resumed(
        self, request: ResponseRequest, items: Sequence[Item]
    ) -> tuple[Part, LiveRun] | None:
        """Go on with a run whose approvals the items decide; return None if they decide none."""
        decisions = _decisions(items)
        runs = {self._parked[key] for key in decisions if key in self._parked}
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
        check_model(request.model, self._state.engine.model)
        place = self._enter()
        covers = request.previous_response_id == run.part.id
        answer = run.part.answer.following(self._resource(request))
        before = run.part.history if covers else ()
        part = Part(answer, items, history=before, covers_previous=covers)
        self._unpark(run)
        run.attend(part, place)
        self._live[part.id] = run
        for key, call_id in run.requests.items():
            if key in decisions:
                await self._decide(part, call_id, key, decisions[key])
        return part, run

    async def _decide(self, part: Part, call_id: str, key: str, decision: Item) -> None:
        assert self._state.people is not None
        call = part.answer.calls[call_id]
        call.is_denied = not decision["approve"]
        try:
            await self._state.people.decide(
                pending_id(key), decision["approve"], decision.get("reason") or "", WHO
            )
        except NotPending:
            call.is_denied = False  # another person decided first

    # -- what goes into a request ----------------------------------------------------------------

    async def resolved(self, items: Sequence[Item]) -> list[Item]:
        """Return the items, with references replaced by the items that they name."""
        return [
            await self._referenced(item["id"]) if item["type"] == REFERENCE else item
            for item in items
        ]

    async def _referenced(self, item_id: str) -> Item:
        try:
            return await self.stored(self._store.item, item_id)
        except NotStored:
            message = f"input: there is no item with the id {item_id[:80]!r}."
            raise ApiError(404, message, param="input", code="item_not_found") from None

    async def history(self, request: Continued, recent: Mapping[str, Stored]) -> History:
        """Return what came before a request; raise `ApiError` 404 if it is not stored."""
        if request.conversation is not None:
            items = await self.conversation_items(request.conversation)
            return History(messages_of(items), items)
        if request.previous_response_id is None:
            return History()
        chain = await self._chain(request.previous_response_id, recent)
        if chain[-1].resource["status"] not in FINAL:
            message = "previous_response_id names a response that is not complete: wait for it."
            raise invalid(message, "previous_response_id")
        items = [item for each in chain for item in (*each.input, *each.output)]
        return History(history_of(chain), items)

    async def _chain(self, response_id: str, recent: Mapping[str, Stored]) -> list[Stored]:
        newest: list[Stored] = []
        following: str | None = response_id
        while following is not None and following in recent:
            newest.append(recent[following])
            following = newest[-1].previous
        if following is None:
            return newest[::-1]
        try:
            return [*await self.stored(self._store.chain, following), *newest[::-1]]
        except NotStored as error:
            raise ApiError(
                404,
                f"There is no response with the id {error.missing[:80]!r}: it was not stored, was "
                "deleted, or is too old.",
                param="previous_response_id",
                code="previous_response_not_found",
            ) from None

    async def conversation_items(self, conversation_id: str) -> list[Item]:
        """Return the items of a conversation; raise `ApiError` 404 if there is none."""
        try:
            return await self.stored(self._store.conversation_items, conversation_id)
        except NotStored:
            raise ApiError(
                404,
                f"There is no conversation with the id {conversation_id[:80]!r}.",
                param="conversation",
                code="conversation_not_found",
            ) from None

    # -- finding ---------------------------------------------------------------------------------

    def under_way(self, response_id: str) -> Part | None:
        """Return a response that has not ended yet, or None."""
        run = self._live.get(response_id)
        return None if run is None else run.part

    def run_of(self, response_id: str) -> LiveRun | None:
        """Return the run that makes a response, or None if the response has ended."""
        return self._live.get(response_id)

    def with_events(self, response_id: str) -> Part | None:
        """Return a background response whose events can be streamed, or None."""
        part = self.under_way(response_id)
        if part is not None and part.answer.resource.request.background:
            return part
        return self._feeds.get(response_id)

    async def get(self, response_id: str) -> Stored:
        """Return a response in its present state; raise `ApiError` 404 if there is none."""
        part = self.under_way(response_id)
        if part is not None and part.answer.resource.request.stored:
            return part.stored()
        try:
            return await self.stored(self._store.get, response_id)
        except NotStored:
            raise _no_response(response_id) from None

    async def delete(self, response_id: str) -> None:
        """Delete a response, and cancel it if it is under way; raise `ApiError` 404."""
        run = self.run_of(response_id)
        if run is not None:
            await run.cancel()
        self._feeds.pop(response_id, None)
        try:
            await self.stored(self._store.delete, response_id)
        except NotStored:
            raise _no_response(response_id) from None

    async def stored(self, work: Callable[..., T], *values: object) -> T:
        """Return the result of the store's method `work`; raise `ApiError` 503 if it fails."""
        try:
            return await asyncio.to_thread(work, *values)
        except (sqlite3.Error, UsageError) as error:
            LOG.warning("stored responses cannot be used: %s", error)
            raise ApiError(503, "Stored responses cannot be read now.", code="store") from None

    @property
    def store(self) -> Store:
        """The store of responses and conversations."""
        return self._store

    async def aclose(self) -> None:
        """End the runs under way and those that wait for approvals, and close the store."""
        runs = {*self._live.values(), *self._parked.values()}
        await asyncio.gather(*(run.stop() for run in runs))
        await asyncio.to_thread(self._store.close)

    # -- the end of a response -------------------------------------------------------------------

    async def _forget(self, part: Part) -> None:
        self._live.pop(part.id, None)

    async def _save(self, part: Part) -> None:
        """Keep a response that has ended; its client gets it even if it cannot be stored."""
        await self._forget(part)
        request = part.answer.resource.request
        if request.background:
            self._feeds[part.id] = part
            while len(self._feeds) > MAX_FEEDS:
                del self._feeds[next(iter(self._feeds))]
        if request.stored:
            await self._write(part.stored())

    async def _write(self, stored: Stored) -> None:
        try:
            await asyncio.to_thread(self._store.put, stored)
        except (sqlite3.Error, UsageError) as error:
            LOG.warning("the response %s is not stored: %s", stored.id, error)

    def _park(self, run: LiveRun) -> None:
        for key in run.requests:
            self._parked[key] = run
        while len(self._parked) > MAX_PARKED:
            oldest = next(iter(self._parked.values()))
            self._unpark(oldest)
            stopping = asyncio.create_task(oldest.stop())
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)

    def _unpark(self, run: LiveRun) -> None:
        for key in [key for key, each in self._parked.items() if each is run]:
            del self._parked[key]


def _decisions(items: Sequence[Item]) -> dict[str, Item]:
    """Return the decisions about calls that the items do not show as made, by approval request."""
    made = {item.get("approval_request_id") for item in items if item["type"] == "mcp_call"}
    return {
        item["approval_request_id"]: item
        for item in items
        if item["type"] == "mcp_approval_response" and item["approval_request_id"] not in made
    }


def _no_response(response_id: str) -> ApiError:
    return ApiError(
        404,
        f"There is no response with the id {response_id[:80]!r}.",
        param="response_id",
        code="response_not_found",
    )
