"""A run under way, whose events become one response, or several with approvals in between.

While a run waits for approvals, its request stays paused in the engine, and its KV cache is
handled as in any other pause. A run whose messages do not fit may be tried again with fewer.
"""

import asyncio
import copy
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from caesura.runtime.engine import EngineSession
from caesura.runtime.errors import ContextOverflow, LimitReached, UsageError
from caesura.runtime.events import RunEvent, Steered, TurnEnded
from caesura.runtime.journal.record import BadJournal
from caesura.runtime.run.context import Plan
from caesura.runtime.run.fold import Transcript
from caesura.runtime.run.steering import Steering
from caesura.runtime.server.api.decoding import begun_run
from caesura.runtime.server.api.people import pending_told
from caesura.runtime.server.http.errors import ApiError, from_exception
from caesura.runtime.server.keys.sender import Sender
from caesura.runtime.server.load.state import State
from caesura.runtime.server.responses import ids
from caesura.runtime.server.responses.items import items_of
from caesura.runtime.server.responses.messages import messages_of
from caesura.runtime.server.responses.plan import ResponsePlan, shortened
from caesura.runtime.server.responses.resource import Resource
from caesura.runtime.server.responses.response import Ending, Part
from caesura.runtime.server.responses.resumed import Attended
from caesura.runtime.server.responses.steering import (
    ENDED,
    INVALID,
    TOO_MANY,
    UNSUPPORTED,
    Steer,
    refused,
    successor_id,
)
from caesura.runtime.server.responses.store import Item
from caesura.scheduler.messages import Message, text_of
from caesura.tools.people import NotPending, Pending

WHO = "mcp_approval_response"
"""Who decides where the key has no name."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The client's decision about a call that waits for an approval."""

    approval_id: str
    approve: bool
    reason: str
    who: str = WHO

    def to_wire(self) -> dict[str, Any]:
        """Return the decision for the journal."""
        decision = {"approve": self.approve, "reason": self.reason, "who": self.who}
        return {"request_id": self.approval_id, **decision}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Decision":
        """Return the decision that a journal tells of; raises LookupError for other data."""
        told = str(wire["request_id"]), bool(wire["approve"]), str(wire["reason"])
        return cls(*told, str(wire["who"]))


def approval_id_of(pending_id: str) -> str:
    """Return the id of the approval request for an item that waits for a person."""
    return f"{ids.APPROVAL_REQUEST}_{pending_id}"


def pending_id_of(approval_id: str) -> str:
    """Return the id of the item that waits for a person, of its approval request."""
    return approval_id.removeprefix(f"{ids.APPROVAL_REQUEST}_")


def decisions_in(items: Sequence[Item]) -> dict[str, Item]:
    """Return the decisions about calls that the items do not show as made, by approval request."""
    made = {item.get("approval_request_id") for item in items if item["type"] == "mcp_call"}
    return {
        item["approval_request_id"]: item
        for item in items
        if item["type"] == "mcp_approval_response" and item["approval_request_id"] not in made
    }


UNATTENDED_SECONDS = 600.0
"""How long a run waits for its client after an approval was decided without the client."""


class RunHost(Protocol):
    """What a run tells the application that it is in."""

    def begun(self, run: "LiveRun") -> None:
        """Take up a run with its first response."""
        ...

    def attended(self, run: "LiveRun", part: Part) -> None:
        """Note that a run that waited goes on as the response `part`."""
        ...

    def parked(self, run: "LiveRun") -> None:
        """Note that a run waits for approvals."""
        ...

    def ended(self, run: "LiveRun") -> None:
        """Forget a run that is over."""
        ...

    async def end(self, part: Part, ending: Ending, messages: Sequence[Message]) -> None:
        """End a response whose run has made these messages: keep it, then send its last events."""
        ...


class LiveRun:
    """One run in a task of its own. It gives back the place of its request while it waits."""

    def __init__(
        self,
        state: State,
        host: RunHost,
        part: Part,
        plan: ResponsePlan,
        sender: Sender,
        began: float | None = None,
    ) -> None:
        """Begin the run of `plan` as the response `part`.

        The request of `sender` came at the time `began`, by `time.monotonic`.
        """
        self.part = self._first = part
        self._state = state
        self._host = host
        self._began = began
        """None once the first token was counted, or where there is no request to wait for it."""
        self._journaled = part.journaled
        self._steering = Steering()
        self._decoding = Decoding(state, plan.run, part, sender, self._steering)
        self._decisions: dict[str, Decision] = {}
        """The client's decisions of an earlier process, by approval request."""
        self._transcript = Transcript([*part.history, *plan.own])
        self._history_length = len(part.history)
        self._asked_length = len(part.history) + len(plan.own)
        self._shown = plan.shown
        self._attended = asyncio.Event()
        self._attended.set()
        self._started = asyncio.Event()
        self._is_cancelled = self._is_left = False
        self._has_released = False
        self._steers: deque[Steer] = deque()
        """What was submitted, and was not told the model as a whole."""
        self._was_whole = False
        """Whether the last turn has ended by itself."""
        self._asked: list[Pending] = []
        """Items that wait for a person, and whose calls were not read yet."""
        self._task = asyncio.create_task(self._run(), name=f"response {part.id}")
        self._task.add_done_callback(lambda _: host.ended(self))
        self._task.add_done_callback(lambda _: self._steers_end())
        host.begun(self)

    @property
    def is_parked(self) -> bool:
        """Whether the run waits for approvals, and no response shows it."""
        return not self._attended.is_set()

    @property
    def session_id(self) -> str:
        """The id of the session of its tools."""
        return self._first.id

    @property
    def goes_on(self) -> bool:
        """Whether a later process can go on with the run."""
        return self._journaled is not None and self._journaled.journal.goes_on

    @property
    def requests(self) -> dict[str, str]:
        """The approval requests that are not decided: their ids, and the ids of their calls."""
        calls = self.part.answer.calls.items()
        return {
            call.approval_id: call_id for call_id, call in calls if call.approval_id is not None
        }

    async def ask(self, item: Pending) -> None:
        """Show an item that waits for a person as an approval request."""
        if item.kind == "approval" and item.tool in self._shown.approved:
            self._asked.append(item)
            await self._show_asked()
            decided = self._decisions.pop(approval_id_of(item.id), None)
            if decided is not None:
                await self._tell_people(decided)

    async def _show_asked(self) -> None:
        self._asked = [item for item in self._asked if not self._show(item)]
        await self._park_if_waiting()

    def _show(self, item: Pending) -> bool:
        """Show an approval request; return False if its call was not read yet."""
        answer = self.part.answer
        approval_id = approval_id_of(item.id)
        if approval_id in self.requests:
            return True  # it was shown before the server was started again
        called = [call_id for call_id, call in answer.calls.items() if call.name == item.tool]
        waiting = [call_id for call_id in called if answer.calls[call_id].approval_id is None]
        if not waiting and self._journaled is not None and self._journaled.is_resumed:
            waiting = called  # the earlier approval was lost with its process
        if not waiting:
            return False
        asked = _parsed(item.arguments)
        same = [each for each in waiting if _parsed(answer.calls[each].arguments) == asked]
        asked_of = (same or waiting)[0]
        if self._journaled is not None:
            self._journaled.step({"asked": [asked_of, approval_id, item.arguments]})
        self.part.ask(asked_of, approval_id, item.arguments)
        return True

    async def decide(self, decision: Decision) -> None:
        """Tell the people of the client's decision about a call that waits."""
        call_id = self.requests[decision.approval_id]
        self._set_denied(call_id, not decision.approve)
        if self._journaled is not None:
            self._journaled.step({"decided": decision.to_wire()})
        if not await self._tell_people(decision):  # another person decided first
            self._set_denied(call_id, False)
            if self._journaled is not None:
                self._journaled.step({"undecided": call_id})

    async def _tell_people(self, decision: Decision) -> bool:
        """Settle the item that waits for a decision; return False if a person decided first."""
        people = self._state.people
        assert people is not None
        item = pending_id_of(decision.approval_id)
        try:
            await people.decide(item, decision.approve, decision.reason, decision.who)
        except NotPending:
            return False
        return True

    def _set_denied(self, call_id: str, denied: bool) -> None:
        if (call := self.part.answer.calls.get(call_id)) is not None:
            call.is_denied = denied

    async def _repeat(self, step: dict[str, Any]) -> None:
        """Repeat a step of the server's own, of a run that is driven again."""
        try:
            if "asked" in step:
                call_id, approval_id, arguments = step["asked"]
                self.part.ask(call_id, approval_id, arguments)
                await self._park_if_waiting()
            elif "decided" in step:
                decision = Decision.from_wire(step["decided"])
                self._decisions[decision.approval_id] = decision
                self._set_denied(self.requests[decision.approval_id], not decision.approve)
            elif "undecided" in step:
                self._set_denied(step["undecided"], False)
            else:
                attended = Attended.from_wire(step["attended"])
                resource = attended.resource(self._state.engine.default_sampling)
                self._attend(
                    self.part.following(resource, attended.items, attended.covers_previous)
                )
        except (LookupError, ValueError, TypeError) as error:
            raise BadJournal(f"a step of the run cannot be repeated: {error!r}") from None

    # -- steering --------------------------------------------------------------------------------

    def steer(self, steer: Steer) -> None:
        """Let the model be told messages of the user behind what it has said.

        Raises `ApiError` if the response cannot be steered, or not any more.
        """
        if self._shown.compacts or self.part.answer.resource.request.conversation is not None:
            what = "a compaction" if self._shown.compacts else "a response in a conversation"
            raise refused(UNSUPPORTED, f"{steer.target} is {what}, which cannot be steered.")
        messages = messages_of(steer.items)
        if any(not isinstance(each.get("content"), str) for each in messages):
            raise refused(INVALID, "input: a running response is told texts alone.")
        try:
            for message in messages:
                self._steering.say(message["content"])
        except UsageError as error:
            code = TOO_MANY if self._steering.is_pending else ENDED
            raise refused(code, f"{steer.target}: {error}.") from None
        self._steers.append(steer)

    def untold(self) -> list[Steer]:
        """Return the submissions that the model was not told as a whole."""
        return list(self._steers)

    async def _steered(self, event: Steered) -> None:
        """Go on behind a message of the user, as another response unless that has just begun."""
        if not (self.part.is_successor and not self.part.answer.has_begun):
            await self._succeed()
        item = {"role": "user", "content": text_of(event.message.get("content"))}
        steer = self._steers[0] if self._steers else None
        place = 0 if steer is None else len(steer.items) - steer.left
        items = items_of([item]) if steer is None else [steer.items[place]]
        self.part.input_items = [*self.part.input_items, *items]
        if steer is not None:
            steer.left -= 1
            if not steer.left:
                self._steers.popleft().end(self.part.id)

    async def _succeed(self) -> None:
        """End the response, and begin the one that goes on with the run."""
        before, resource = self.part, self.part.answer.resource
        asked = resource.request.model_copy(update={"previous_response_id": before.id})
        named = successor_id(before.id)
        made = Resource(asked, self._state.engine.default_sampling, id=named)
        messages = list(self._transcript.messages[self._history_length :])
        part = before.following(made, [], covers=True)
        part.is_successor, part.place = True, before.place
        before.place = ExitStack()
        before.successor = part
        ending: Ending = "complete" if self._was_whole else "steer"
        await asyncio.shield(self._host.end(before, ending, messages))
        self._attend(part)

    def attend(self, part: Part) -> None:
        """Go on with the run as the response `part`, which follows the one before."""
        if self._journaled is not None:
            self._journaled.step({"attended": Attended.of(part).to_wire()})
        self._attend(part)

    def _attend(self, part: Part) -> None:
        self._host.attended(self, part)
        if not part.covers_previous:
            self._history_length = 0  # the new response continues none that holds the history
        self.part = part
        self._attended.set()

    async def cancel(self) -> None:
        """Break off the run for its client, and wait until it has ended."""
        self._is_cancelled = True
        await self.stop()

    async def leave(self) -> None:
        """Break off the run; with a journal, a later process goes on with it."""
        self._is_left = True
        await self.stop()

    async def stop(self) -> None:
        """Break off the run, and wait until it has ended."""
        await self._started.wait()  # a task that is cancelled before its begin runs no `finally`
        self._task.cancel()
        await self.over()

    async def over(self) -> None:
        """Wait until the run is over, and what is kept of it is stored."""
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        self._started.set()
        error: Exception | None = None
        try:
            await self._read()
            if self._journaled is None or await self._journaled.is_ours():
                # Before the last event, which the client may answer with the next request.
                await self._release(self._answers())
                await self._end("complete")
                self._finish()
                return
        except asyncio.CancelledError:
            pass
        except Exception as raised:
            error = raised
        # A second cancellation must leave no session in the engine and no run in the journal.
        await asyncio.shield(self._break_off(error))

    def _steers_end(self) -> None:
        """Tell those who steer the run that it has ended."""
        self._steering.over()
        for steer in self._steers:
            steer.end(None)

    async def _break_off(self, error: Exception | None) -> None:
        """End a run that has failed, that was cancelled, or that another server has (None).

        Its journal stays only if another process goes on with it.
        """
        is_left = error is None and self._is_left and self.goes_on
        try:
            await self._release()
        finally:
            if is_left or (self._journaled is not None and self._journaled.journal.taken_over):
                self.part.feed.end(_goes_on(self.part))
            else:
                await self._give_up(error)

    async def _give_up(self, error: Exception | None) -> None:
        """End the response, and the journal even if the response cannot be kept."""
        stopped = ApiError(503, "The server stopped before the response was complete.")
        try:
            if error is None and self._is_cancelled:
                await self._end("cancel")
            else:
                await self._fail(error or stopped)
        finally:
            self._finish()
            if not self.part.feed.is_ended:
                self.part.feed.end(from_exception(error or stopped))

    def _finish(self) -> None:
        if self._journaled is not None:
            self._journaled.journal.finish()

    async def _read(self) -> None:
        decoded = self._decoding.events(self.ask)
        told = decoded if self._journaled is None else self._journaled.events(decoded)
        try:
            async with aclosing(told) as events:
                async for event in events:
                    if isinstance(event, dict):
                        await self._repeat(event)
                        continue
                    await self._attendance()
                    if isinstance(event, Steered):
                        await self._steered(event)
                        self._transcript.take(event)
                        continue
                    if isinstance(event, TurnEnded):
                        self._was_whole = event.reason == "stop"
                    self._transcript.take(event)
                    await self._take(event)
        except LimitReached as limit:
            # A turn that ended with a call used up the tokens. The response is incomplete.
            if limit.limit != "max_tokens":
                raise
            self.part.answer.cut()

    async def _take(self, event: RunEvent) -> None:
        if self.part.take(event) and self._began is not None:
            self._state.metrics.first_token.observe(time.monotonic() - self._began)
            self._began = None
        await self._show_asked()

    async def _park_if_waiting(self) -> None:
        """End the response if the run can only go on with approvals."""
        if self.is_parked or not self.part.answer.waits:
            return
        self._attended.clear()
        settled = copy.deepcopy(self._transcript)
        settled.settle()
        self.part.place.close()
        self._host.parked(self)
        messages = settled.messages[self._history_length :]
        await asyncio.shield(self._host.end(self.part, "complete", messages))

    async def _attendance(self) -> None:
        """Wait until a response shows the run; raise TimeoutError if none comes."""
        if self.is_parked:
            async with asyncio.timeout(UNATTENDED_SECONDS):
                await self._attended.wait()

    async def _end(self, ending: Ending) -> None:
        if not self.is_parked:  # the last response of a run that waits has ended already
            await self._host.end(self.part, ending, self._messages(self._history_length))

    async def _fail(self, error: Exception) -> None:
        if self.is_parked:
            return
        if isinstance(error, BadJournal):
            error = ApiError(500, f"The response cannot go on: {error}.", code="journal")
        told = from_exception(error)
        if isinstance(error, ContextOverflow):
            told.param = "input"
        await self._end(told)

    def _messages(self, first: int) -> list[Message]:
        """Return the messages of the input and of the run, as a client would send them again.

        `first` is the number of the first message wanted.
        """
        self._transcript.settle()
        messages = list(self._transcript.messages[first:])
        if self._transcript.has_malformed_call and not self._shown.pausing:
            # The response shows the text of such a call, or a call of the client.
            asked = self._transcript.messages[first : self._asked_length]
            return [*asked, *messages_of(self.part.stored().output)]
        if self._transcript.leaves_calls and self._shown.pausing:
            _keep_calls_of_client(messages, self._shown.client)
        elif self._transcript.leaves_calls:
            _drop_results(messages)
        return messages

    def _answers(self) -> list[list[Message]]:
        """Return the messages of the run in the forms in which a follow-up may send them.

        A request that names the response has the messages of the run, also those of calls that
        the output does not show. A client that sends the items again has the output.
        """
        answers = [self._messages(self._asked_length)]
        if self.part is self._first and not self._shown.compacts:
            answers.append(messages_of(self.part.stored().output))
        return answers

    async def _release(self, answers: Sequence[Sequence[Message]] = ()) -> None:
        """Give back the place and the engine's session, once."""
        self.part.place.close()
        if not self._has_released:
            self._has_released = True
            await self._decoding.close(self._transcript.leaves_calls, answers)


def _goes_on(part: Part) -> ApiError:
    return ApiError(
        503,
        f"The server stopped before the response {part.id} was complete. It goes on after the "
        f"restart: get it by GET /v1/responses/{part.id}.",
        code="server_stopped",
    )


def _drop_results(messages: list[Message]) -> None:
    """Remove the results of the last turn, whose calls the client will answer."""
    while messages and messages[-1]["role"] == "tool":
        messages.pop()


def _keep_calls_of_client(messages: list[Message], client_tools: Collection[str]) -> None:
    """Remove from the last turn the results, and the calls by the server that were dropped."""
    _drop_results(messages)
    last: dict[str, Any] = dict(messages.pop())
    calls = last.get("tool_calls", ())
    last["tool_calls"] = [call for call in calls if call["function"]["name"] in client_tools]
    messages.append(last)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


class Decoding:
    """The decoding of one response: its session, which a shortened conversation opens again."""

    def __init__(
        self, state: State, plan: Plan, part: Part, sender: Sender, steering: Steering
    ) -> None:
        self._state = state
        self._plan = plan
        self._steering = steering
        self._journaled = part.journaled
        self._session_id = part.id
        self._shortens = part.answer.resource.request.truncation == "auto"
        self._sender = sender
        self._session = self._opened(self._plan)

    def _opened(self, plan: Plan) -> EngineSession:
        log = None if self._journaled is None else self._journaled.journal
        return self._state.opened(plan.spec, self._session_id, log)

    async def events(
        self, ask: Callable[[Pending], Awaitable[None]]
    ) -> AsyncGenerator[RunEvent, None]:
        """Yield the run's events; `ask` is told of items that wait for a person."""
        async with pending_told(self._state.people, self._session_id, self._plan.registry, ask):
            plan = self._plan
            while True:
                try:
                    async with self._begun(plan) as events:
                        async for event in events:
                            self._shortens = False
                            yield event
                    return
                except ContextOverflow:
                    shorter = self._shortened(plan)
                    if shorter is None:
                        raise
                    plan = shorter
                    await self._session.close()
                    self._session = self._opened(plan)

    def _begun(self, plan: Plan) -> AbstractAsyncContextManager[AsyncGenerator[RunEvent, None]]:
        about = (self._session, self._session_id, self._sender)
        return begun_run(self._state, plan, *about, self._journaled, self._steering)

    def _shortened(self, plan: Plan) -> Plan | None:
        """Return the plan with fewer messages, or None if the run must not be tried again."""
        messages = shortened(plan.messages) if self._shortens else None
        return None if messages is None else replace(plan, messages=tuple(messages))

    async def close(self, leaves_calls: bool, answers: Sequence[Sequence[Message]]) -> None:
        """Close the engine's session; a follow-up that holds one of `answers` continues from it."""
        for answer in answers:
            if answer and answer[-1]["role"] == "assistant":
                await self._session.remember(answer)
        await self._session.close(follow_up=leaves_calls)
