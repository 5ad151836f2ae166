"""The records of an engine's death. See `schema` for how records are declared."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from caesura.scheduler.records.parts import About, Record


@dataclass(frozen=True, slots=True)
class RestartRecord(Record):
    """The engine's process died or hung. What came of it is a later record with the same `at`."""

    kind: ClassVar[str] = "restart"
    set_by: ClassVar[str] = (
        "the server, when it finds the engine dead, when a start fails, and when the engine takes "
        "work again or is given up"
    )

    at: Annotated[
        float,
        About(
            "when it died; of a hung one, when it began to be silent", "s", read_by="page, export"
        ),
    ]
    why: Annotated[
        str, About("the reason, as far as it is known", read_by="page, export, runs")
    ] = ""
    attempts: Annotated[
        int, About("starts of the engine, failed ones too", read_by="page, export, runs")
    ] = 0
    seconds: Annotated[
        float | None,
        About("until it took work; null: it has not", "s", read_by="page, export, runs"),
    ] = None
    state: Annotated[
        str,
        About(
            "`down`, `restarted` or `given up`; empty in older records, which were written once",
            read_by="page, export, runs",
        ),
    ] = ""

    @property
    def outcome(self) -> str:
        """Return the state, also of an older record."""
        return self.state or ("given up" if self.seconds is None else "restarted")


@dataclass(frozen=True, slots=True)
class ContinuedRecord(Record):
    """A session's request was lost with its engine, and the session goes on in another one."""

    kind: ClassVar[str] = "continued"
    set_by: ClassVar[str] = "the session, when it sends its tokens to the next engine"

    request: Annotated[str, About("the id of the new request, without what the engine appends")]
    lost: Annotated[str, About("the id of the lost request, without what the engine appends")]
    at: Annotated[float, About("when the new request was sent", "s")]
    sent: Annotated[
        float | None,
        About("when the lost request was sent, also one that a dead engine never had", "s"),
    ] = None
