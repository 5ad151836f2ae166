"""The record of an engine's death. See `schema` for how records are declared."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from caesura.scheduler.records.parts import About, Record


@dataclass(frozen=True, slots=True)
class RestartRecord(Record):
    """The engine's process died or hung, and was started again or given up."""

    kind: ClassVar[str] = "restart"
    set_by: ClassVar[str] = "the server, when the engine takes work again or is given up"

    at: Annotated[float, About("when the server found it dead", "s", read_by="export")]
    why: Annotated[str, About("the reason, as far as it is known", read_by="export")] = ""
    attempts: Annotated[int, About("starts of the engine, failed ones too", read_by="export")] = 0
    seconds: Annotated[
        float | None, About("until it took work; null: it was given up", "s", read_by="export")
    ] = None
