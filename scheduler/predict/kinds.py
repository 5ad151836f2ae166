"""A record for each kind of session or tool, and one for all kinds together."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

MAX_KINDS = 1000


class Record(Protocol):
    """The record of one kind."""

    def to_wire(self) -> dict[str, Any]:
        """Return the record as plain data."""
        ...


R = TypeVar("R", bound=Record)


class Kinds(Generic[R]):
    """Records by kind; `together` is the record of all kinds. The last `most` kinds are kept.

    `make` returns the record of a new kind, given `together`.
    """

    def __init__(self, together: R, make: Callable[[R], R], most: int = MAX_KINDS) -> None:
        self.together = together
        self._make = make
        self._most = most
        self._records: OrderedDict[str, R] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def find(self, kind: str) -> R | None:
        """Return the kind's record, or None."""
        return self._records.get(kind)

    def learn(self, kind: str) -> R:
        """Return the kind's record for an observation, and mark the kind as the latest."""
        record = self._records.get(kind)
        if record is None:
            record = self._records[kind] = self._make(self.together)
            if len(self._records) > self._most:
                self._records.popitem(last=False)
        else:
            self._records.move_to_end(kind)
        return record

    def to_wire(self) -> dict[str, Any]:
        """Return the records as plain data, in the order of the kinds' last observations."""
        kinds = {kind: record.to_wire() for kind, record in self._records.items()}
        return {"together": self.together.to_wire(), "kinds": kinds}

    def restore(self, wire: Mapping[str, Any], read: Callable[[Mapping[str, Any]], R]) -> None:
        """Load the data that `to_wire` wrote, or raise `ValueError` and change nothing."""
        kinds = wire.get("kinds") if isinstance(wire, Mapping) else None
        if not isinstance(kinds, Mapping) or not all(isinstance(kind, str) for kind in kinds):
            raise ValueError(f"records by kind must have an object `kinds`, got {wire!r:.200}")
        together = read(wire.get("together", {}))
        records = [(kind, read(record)) for kind, record in list(kinds.items())[-self._most :]]
        self.together, self._records = together, OrderedDict(records)
