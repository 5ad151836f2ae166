"""Creating, continuing, finding and deleting responses, as the routes ask for it."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from caesura.runtime.journal.journaled_run import JournaledRun
from caesura.runtime.journal.record import Recorded
from caesura.runtime.run.context import Plan
from caesura.runtime.run.served_agent import instructed
from caesura.runtime.server.api.agents import AgentRequest
from caesura.runtime.server.api.chat_request import adapter_of
from caesura.runtime.server.api.compaction import is_summary
from caesura.runtime.server.api.decoding import filled, with_sender
from caesura.runtime.server.api.hosted import run_here
from caesura.runtime.server.api.notes import say_once
from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.keys.sender import Sender
from caesura.runtime.server.load.diagnosis import Diagnosis
from caesura.runtime.server.load.state import State
from caesura.runtime.server.responses.answer import Answer, CompactingAnswer
from caesura.runtime.server.responses.library import Library
from caesura.runtime.server.responses.plan import History, ResponsePlan, make_plan
from caesura.runtime.server.responses.resource import Resource
from caesura.runtime.server.responses.response import Part
from caesura.runtime.server.responses.resumed import API, Attended, Begun
from caesura.runtime.server.responses.run import WHO, Decision, LiveRun, decisions_in
from caesura.runtime.server.responses.runs import LiveRuns
from caesura.runtime.server.responses.schema import ResponseRequest, unread, with_hosted
from caesura.runtime.server.responses.steering import NOT_FOUND, Steer, refused, steer_of
from caesura.runtime.server.responses.store import Item, ResponseStore, Stored
from caesura.scheduler.messages import has_media

LOG = logging.getLogger(__name__)


class Responses:
    """The responses of one application: its runs, and the library of what is stored."""

    def __init__(self, state: State, store: ResponseStore) -> None:
        self._state = state
        self.library = Library(store)
        self.runs = LiveRuns(self.library)
        self.is_leaving = False
        """Whether the server is about to end."""

    # -- the life of the application -------------------------------------------------------------

    def start(self) -> None:
        """Let other servers over the same store know that this one lives."""
        self.library.start()

    async def resume(self, records: Sequence[Recorded]) -> None:
        """Go on with the runs of responses among those that an ended process has left."""
        for record in records:
            if record.about.get("api") != API or self._state.journal is None:
                continue
            journal = self._state.journal.resume(record)
            try:
                journaled = JournaledRun(self._state.journal, journal, self._state.people, record)
                await self._begin_again(Begun.read(record), journaled)
            except Exception as error:  # whatever it holds, the server starts and others go on
                LOG.warning("the response %s does not go on: %r", record.run_id, error)
                journal.finish()

    def go_on(self, records: Sequence[Recorded]) -> None:
        """Go on with runs that another server has left, in the background."""
        self.runs.in_background(self.resume(records))

    async def leave(self, sessions: Collection[str] | None = None) -> None:
        """Break off the runs that a later process can go on with; by default all of them."""
        await self.runs.leave(sessions)

    async def aclose(self) -> None:
        """End the runs under way and those that wait for approvals, and close the store.

        Those with a journal go on in the next process.
        """
        self.library.leave()
        await self.runs.aclose()
        await self.library.aclose()

    # -- creating --------------------------------------------------------------------------------

    async def create(
        self,
        request: ResponseRequest,
        given: Sequence[Item],
        sender: Sender,
        recent: Mapping[str, Stored] | None = None,
    ) -> tuple[Part, LiveRun]:
        """Start a response to the items `given`; return it and the run that makes it.

        `recent` are responses that only this client can continue, by id. Raises `ApiError`.
        """
        began = time.monotonic()
        request = with_hosted(request, run_here(self._state.tools))
        items, history = await self._read(request, given, sender, recent)
        if (found := await self._continued(request, items, sender)) is not None:
            return found
        plan = await self._planned(request, items, history)
        part = self._part(self._resource(request), items, history, plan, sender.tenant)
        part.answer.diagnosis = await self._compared(request, plan.run, sender.tenant)
        named = self._session_of(request, sender) or part.id
        sender = sender.of_user(plan.run.user, named, plan.run.spec.origin)
        part.journaled = self._begun_journal(part, history, plan, sender)
        return part, await self._start(part, plan, sender, began)

    async def prepare(
        self,
        request: ResponseRequest,
        given: Sequence[Item],
        sender: Sender,
        recent: Mapping[str, Stored] | None = None,
    ) -> tuple[Part, None]:
        """Keep a request as a response without output, so that another one can continue it.

        The KV cache of its prompt is filled meanwhile, see `filled`.

        The parameters are those of `create`.
        """
        request = with_hosted(request, run_here(self._state.tools))
        items, history = await self._read(request, given, sender, recent)
        plan = await self._planned(request, items, history)
        part = self._part(self._resource(request), items, history, plan, sender.tenant)
        await self.runs.end(part, "skip", plan.own)
        named = sender.of_user(plan.run.user, part.id, plan.run.spec.origin)
        self.runs.in_background(filled(self._state, plan.run, named))
        return part, None

    async def _read(
        self,
        request: ResponseRequest,
        given: Sequence[Item],
        sender: Sender,
        recent: Mapping[str, Stored] | None,
    ) -> tuple[list[Item], History]:
        """Return the items of a request, and what came before them."""
        reach = self.reach(sender)
        items = await self.library.resolved(given, reach, sender.tenant)
        return items, await self.library.history(request, recent or {}, reach)

    def _session_of(self, request: ResponseRequest, sender: Sender) -> str:
        """Return the session of what a request continues, where trajectories are kept.

        An empty text stands for none.
        """
        kept, before = self._state.sessions, request.previous_response_id
        if kept is None or before is None:
            return "" if kept is None else request.conversation or ""
        return kept.name_of(before, sender.tenant)

    async def _planned(
        self, request: ResponseRequest, items: Sequence[Item], history: History
    ) -> ResponsePlan:
        state = self._state
        tools, limits = state.tools, state.limits
        agents = await instructed(state.agents, request.model)
        agent = AgentRequest.of(request.model, agents)
        if agent is not None:
            request, tools = agent.asked(request), agent.among(tools)
            limits = agent.limits(state.engine)
        adapter = adapter_of(request.model, state.engine, state.agents)
        about = (state.engine, tools, limits, state.people)
        plan = await asyncio.to_thread(make_plan, request, items, history, *about)
        run = replace(plan.run, spec=replace(plan.run.spec, adapter=adapter))
        return replace(plan, run=run if agent is None else agent.plan(run))

    async def _compared(self, request: ResponseRequest, plan: Plan, tenant: str) -> Diagnosis:
        """Return a request's prompt beside that of the response which it names, if it does."""
        about = (self._state.engine, tenant, plan, request.compared_with)
        found = await self._state.diagnoses.compare(*about)
        miss = found.miss
        differs = () if miss is None or miss.place is None else plan.messages[miss.place :]
        if miss is not None and any(map(is_summary, differs)):
            return replace(found, miss=replace(miss, change="compacted"))
        return found

    def _part(
        self,
        resource: Resource,
        items: Sequence[Item],
        history: History,
        plan: ResponsePlan,
        tenant: str,
    ) -> Part:
        answer = (
            CompactingAnswer(resource, plan.shown)
            if plan.shown.compacts
            else Answer(resource, plan.shown, tenant=tenant)
        )
        resource.notes = [*unread(items), *plan.notes]
        say_once(resource.notes)
        return Part(answer, items, plan.listed, history=history.messages, tenant=tenant)

    def _resource(self, request: ResponseRequest) -> Resource:
        return Resource(request, self._state.engine.default_sampling)

    def _begun_journal(
        self, part: Part, history: History, plan: ResponsePlan, sender: Sender
    ) -> JournaledRun | None:
        """Begin the journal of a run whose client can come back for its response."""
        writer, request = self._state.journal, part.answer.resource.request
        # Tokens alone bring back neither their probabilities nor the pictures before them.
        lost = plan.run.sampling.logprobs is not None or has_media(plan.run.messages)
        if writer is None or not request.stored or lost:
            return None
        begun = Begun(Attended.of(part), history, sender)
        return JournaledRun(writer, writer.begin(part.id, begun.to_wire()), self._state.people)

    async def _start(
        self,
        part: Part,
        plan: ResponsePlan,
        sender: Sender,
        began: float | None,
    ) -> LiveRun:
        plan = replace(plan, run=with_sender(self._state, plan.run, sender))
        try:
            with ExitStack() as place:
                if part.journaled is None or not part.journaled.is_resumed:
                    place.enter_context(self._state.gate.enter(sender))
                run = LiveRun(self._state, self.runs, part, plan, sender, began)
                part.place = place.pop_all()
        except BaseException:  # a run that was refused must not begin in the next process
            if part.journaled is not None:
                part.journaled.journal.finish()
            raise
        if part.answer.resource.request.background:
            await self.library.put(part.stored())
            part.begin()
        return run

    # -- continuing ------------------------------------------------------------------------------

    async def _begin_again(self, begun: Begun, journaled: JournaledRun) -> None:
        """Drive again a run that an ended process has left."""
        request = with_hosted(begun.first.request, run_here(self._state.tools))
        first = replace(begun.first, request=request)
        plan = await self._planned(first.request, first.items, begun.history)
        resource = first.resource(self._state.engine.default_sampling)
        part = self._part(resource, first.items, begun.history, plan, begun.sender.tenant)
        part.journaled = journaled
        await self._start(part, plan, begun.sender, None)

    async def _continued(
        self, request: ResponseRequest, items: Sequence[Item], sender: Sender
    ) -> tuple[Part, LiveRun] | None:
        """Go on with a run whose approvals the items decide; return None if they decide none."""
        decisions = decisions_in(items)
        runs = self.runs.waiting_for(decisions, self.reach(sender))
        if not runs:
            _check_none_approved(decisions)
            return None
        if len(runs) > 1 or items[-1]["type"] != "mcp_approval_response":
            message = "input: send the decisions about one response, and nothing behind them."
            raise invalid(message, "input")
        run = runs.pop()
        adapter_of(request.model, self._state.engine, self._state.agents)
        with ExitStack() as place:
            place.enter_context(self._state.gate.enter(sender))
            covers = request.previous_response_id == run.part.id
            part = run.part.following(self._resource(request), items, covers)
            part.place = place.pop_all()
        run.attend(part)
        who = self._state.door.signature(sender, WHO)
        for key in run.requests:
            if key in decisions:
                said, reason = decisions[key]["approve"], decisions[key].get("reason") or ""
                await run.decide(Decision(key, said, reason, who))
        return part, run

    # -- finding ---------------------------------------------------------------------------------

    def reach(self, sender: Sender) -> Reach:
        """Return whose responses and conversations a sender may use."""
        return self._state.door.reach(sender)

    async def get(self, response_id: str, reach: Reach) -> Stored:
        """Return a response in its present state; raise `ApiError` 404 if there is none."""
        run = self.runs.of(response_id, reach)
        if run is not None and run.part.answer.resource.request.stored:
            return run.part.stored()
        return await self.library.get(response_id, reach)

    async def left(self, part: Part, run: LiveRun) -> None:
        """Cancel a response whose client has left, unless the server leaves and it can go on."""
        if not (self.is_leaving and part.journaled is not None):
            await run.cancel()

    def steer(self, given: object, response_id: object, sender: Sender) -> Steer:
        """Tell a response under way messages of the user, which count as a request.

        Raises `ApiError` for a response that cannot be steered, or is not under way, for input that
        is no message of the user, and for a key that may ask for no more.
        """
        run = self.runs.of(str(response_id), self.reach(sender))
        if run is None or not isinstance(response_id, str):
            raise refused(NOT_FOUND, f"There is no response {response_id!r:.80} under way.")
        steer = steer_of(given, response_id)
        self._state.gate.quotas.count(sender)
        run.steer(steer)
        return steer

    async def delete(self, response_id: str, reach: Reach) -> None:
        """Delete a response, and cancel it if it is under way; raise `ApiError` 404."""
        await self.runs.delete(response_id, reach)
        await self.library.delete(response_id, reach)


def _check_none_approved(decisions: Mapping[str, Item]) -> None:
    """Raise `ApiError` for an approval of a call that waits no more; a denial is no harm."""
    for key, item in decisions.items():
        if item["approve"]:
            raise invalid(
                f"input: the approval request {key[:80]!r} does not wait any more: its "
                "call was decided, expired or given up.",
                "input",
                "approval_not_pending",
            )
