"""The record of an engine at rest. See `schema` for how records are declared."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from caesura.scheduler.records.parts import About, Record

_READ = "export, metrics"


@dataclass(frozen=True, slots=True)
class RestRecord(Record):
    """No request runs any more: who holds the blocks that the last step has left."""

    kind: ClassVar[str] = "rest"
    set_by: ClassVar[str] = "the scheduler, when the blocks differ from the last that it told"

    at: Annotated[float, About("when it was looked at", "s", read_by="export")]
    running_blocks: Annotated[
        int, About("held by requests that load or are about to run", "blocks", read_by=_READ)
    ] = 0
    paused_blocks: Annotated[int, About("held by paused requests", "blocks", read_by=_READ)] = 0
    free_blocks: Annotated[int, About("free", "blocks", read_by=_READ)] = 0
