"""What the journal keeps of a response, so that a later process makes the same response."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from caesura.runtime.journal.record import BadJournal, Recorded
from caesura.runtime.server.keys.sender import Sender
from caesura.runtime.server.responses.plan import History
from caesura.runtime.server.responses.resource import Resource
from caesura.runtime.server.responses.schema import ResponseRequest
from caesura.runtime.server.responses.store import Item
from caesura.scheduler.messages import Sampling

if TYPE_CHECKING:
    from caesura.runtime.server.responses.response import Part

API = "responses"


@dataclass(frozen=True, slots=True)
class Attended:
    """The request of one response, and what was chosen for it."""

    response_id: str
    created_at: int
    request: ResponseRequest
    items: Sequence[Item]
    covers_previous: bool = False

    @classmethod
    def of(cls, part: "Part") -> "Attended":
        """Return what the journal keeps of a response."""
        resource = part.answer.resource
        return cls(
            resource.id,
            resource.created_at,
            resource.request,
            part.input_items,
            part.covers_previous,
        )

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        request = self.request.model_dump(
            mode="json", by_alias=True, exclude_unset=True, exclude={"input"}
        )
        return {
            "response": self.response_id,
            "created_at": self.created_at,
            "request": request,
            "items": list(self.items),
            "covers_previous": self.covers_previous,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Attended":
        """Return what a journal tells; raises LookupError and ValueError for other data."""
        return cls(
            str(wire["response"]),
            int(wire["created_at"]),
            ResponseRequest.model_validate(wire["request"]),
            list(wire["items"]),
            bool(wire["covers_previous"]),
        )

    def resource(self, defaults: Sampling) -> Resource:
        """Return the response object, as it was when the response began."""
        return Resource(self.request, defaults, id=self.response_id, created_at=self.created_at)


@dataclass(frozen=True, slots=True)
class Begun:
    """A run of responses as it began."""

    first: Attended
    history: History
    sender: Sender

    def to_wire(self) -> dict[str, Any]:
        """Return what the journal of the run begins with."""
        history = {"messages": list(self.history.messages), "items": list(self.history.items)}
        told = {"api": API, "history": history, "sender": self.sender.to_wire()}
        return told | {"first": self.first.to_wire()}

    @classmethod
    def read(cls, record: Recorded) -> "Begun":
        """Return how a run began. Raises `BadJournal`."""
        about = record.about
        try:
            history = History(about["history"]["messages"], about["history"]["items"])
            return cls(
                Attended.from_wire(about["first"]), history, Sender.from_wire(about["sender"])
            )
        except (LookupError, TypeError, ValueError) as error:
            raise BadJournal(
                f"the first entry of the journal of {record.run_id} makes no sense:"
                f" {str(error)[:200]}"
            ) from None
