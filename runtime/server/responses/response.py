"""One response of a run: its answer, its events for any number of readers, and what is kept."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Literal

from caesura.runtime.events import RunEvent
from caesura.runtime.journal.journaled_run import JournaledRun
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.responses.answer import STEERED, Answer
from caesura.runtime.server.responses.output import Event
from caesura.runtime.server.responses.resource import Resource
from caesura.runtime.server.responses.store import Item, Stored
from caesura.scheduler.messages import Message

Ending = Literal["complete", "steer", "skip", "cancel"] | ApiError
"""How a response ends: with its output, so far as it goes, without any, by its client, or an error.
"""


class Feed:
    """Events so far, and whether more will come. The event's number is its `sequence_number`.

    Events that are held back are not read before they are released, or the feed ends.
    """

    def __init__(self) -> None:
        self._released = 0
        self._events: list[Event] = []
        self._changed = asyncio.Event()
        self.is_ended = False
        self.error: ApiError | None = None
        """The error that ended the response, if one did; the last event tells it too."""
        self.failed_first = False
        """Whether the error came before any event of the run."""

    def push(self, events: Sequence[Event], *, held: bool = False) -> None:
        """Append events, and wake the readers unless the events are held back."""
        self._events.extend(events)
        if not held:
            self.release(len(self._events))

    def release(self, count: int) -> None:
        """Let the first `count` events be read."""
        if count > self._released:
            self._released = count
            self._wake()

    def end(self, error: ApiError | None = None, *, failed_first: bool = False) -> None:
        """Record that no more events will come."""
        self.is_ended, self.error, self.failed_first = True, error, failed_first
        self._released = len(self._events)
        self._wake()

    async def read(self, after: int = -1) -> AsyncGenerator[Event, None]:
        """Yield the events behind the one with the number `after`, until the feed ends."""
        position = after + 1
        while True:
            changed = self._changed
            while position < self._released:
                yield self._events[position]
                position += 1
            if self.is_ended:
                return
            await changed.wait()

    async def ended(self) -> None:
        """Return when no more events will come."""
        while not self.is_ended:
            await self._changed.wait()

    def __len__(self) -> int:
        """Return the number of events so far."""
        return len(self._events)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Part:
    """One response of a run: its answer, its feed, and what is kept of it.

    The events of a `journaled` run are read once the journal tells how they came to be. So a client
    that comes back after the server has died finds them unchanged.
    """

    def __init__(
        self,
        answer: Answer,
        input_items: Sequence[Item],
        tools: Sequence[Item] | None = None,
        *,
        history: Sequence[Message] = (),
        covers_previous: bool = False,
        journaled: JournaledRun | None = None,
        tenant: str,
    ) -> None:
        self.answer = answer
        self.feed = Feed()
        self.input_items = input_items
        self.history = history
        """The messages before those of the response."""
        self.journaled = journaled
        self.tenant = tenant
        """The digest of the API key that the response belongs to."""
        self.successor: Part | None = None
        """The response that goes on behind it, once it has been steered."""
        self.is_successor = False
        """Whether it began by itself, behind a response that was steered."""
        self._tools = tools
        self.covers_previous = covers_previous
        self.place = ExitStack()
        """Its place among the requests under way, given back when it is closed."""
        self._messages: Sequence[Message] = ()

    @property
    def id(self) -> str:
        """The response's id."""
        return self.answer.resource.id

    @property
    def can_be_read_again(self) -> bool:
        """Whether clients may come back for the events."""
        asked = self.answer.resource.request
        return (
            self.is_successor
            or bool(asked.background)
            or (self.journaled is not None and self.journaled.is_resumed)
        )

    def begin(self) -> None:
        """Send the first events, unless they were sent."""
        if not self.answer.has_begun:
            queued = bool(self.answer.resource.request.background)
            self._push(self.answer.begin(self._tools, queued=queued))

    def take(self, event: RunEvent) -> bool:
        """Send what an event of the run adds; return whether it adds anything."""
        self.begin()
        events = self.answer.take(event)
        self._push(events)
        return bool(events)

    def ask(self, call_id: str, approval_id: str, arguments: str) -> None:
        """Send the request to approve a call."""
        self.begin()
        self._push(self.answer.ask(call_id, approval_id, arguments))

    def _push(self, events: Sequence[Event]) -> None:
        if not events:
            return
        self.feed.push(events, held=self.journaled is not None)
        if self.journaled is not None:
            self.journaled.journal.after_written(partial(self.feed.release, len(self.feed)))

    def last_events(self, ending: Ending, messages: Sequence[Message]) -> list[Event]:
        """Return the events that are still to be sent; `messages` are those of the run."""
        self.begin()
        self._messages = messages
        match ending:
            case "complete":
                return self.answer.end(time.time())
            case "steer":
                return self.answer.end(time.time(), STEERED)
            case "skip":
                return self.answer.skip(time.time())
            case "cancel":
                return self.answer.cancel()
            case ApiError():
                return self.answer.fail(ending)

    def following(self, resource: Resource, items: Sequence[Item], covers: bool) -> "Part":
        """Return the next response of the run; `covers` says that it continues this one."""
        return Part(
            self.answer.following(resource),
            items,
            history=self.history if covers else (),
            covers_previous=covers,
            journaled=self.journaled,
            tenant=self.tenant,
        )

    def stored(self) -> Stored:
        """Return what the store keeps of the response in its present state."""
        public = self.answer.snapshot()
        return Stored(
            public,
            self.input_items,
            public["output"],
            self._messages,
            self.covers_previous,
            self.tenant,
        )

    def remembered(self) -> Stored:
        """Return the response with all that it continues, for a client that does not store it."""
        stored = self.stored()
        resource = stored.resource | {"previous_response_id": None, "conversation": None}
        messages = [*self.history, *self._messages]
        return Stored(resource, stored.input, stored.output, messages, tenant=self.tenant)
