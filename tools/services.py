"""What tools are made with: places for files, what is closed at the end, errors about set-up."""

import importlib.util
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from caesura.tools.artifacts import ArtifactStore


class SetupError(ValueError):
    """A tool cannot be set up as it is configured. The message says what to do."""


class ToolSettings(BaseModel):
    """What `[tools.NAME]` of a configuration may say of any tool; a tool's own adds to it.

    A field that is left out, or None, stays as the tool has it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout_seconds: float | None = Field(None, gt=0, description="the longest one attempt may run")
    retries: int | None = Field(None, ge=0, le=10, description="tries after a failure")
    concurrency: int | None = Field(None, ge=1, description="calls at a time")
    max_result_tokens: int | None = Field(None, ge=1, description="a longer result is cut")
    breaker: int | None = Field(None, ge=1, description="failures in a row until it rests")
    approval: bool = Field(False, description="a person has to agree to each call")


@dataclass(slots=True)
class Services:
    """What all tools of one process share.

    `data` is a directory for what they keep over restarts (corpora, caches, open questions).
    `allow_private` lets HTTP tools reach addresses that are not public.
    """

    artifacts: ArtifactStore
    data: Path
    allow_private: bool = False
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    shared: dict[str, object] = field(default_factory=dict)
    """What several tools use together, by name; each is made by the first that asks for it."""

    def at_end(self, close: Callable[[], Awaitable[object]]) -> None:
        """Have `close` called when the tools are put away."""
        self.stack.push_async_callback(close)


def require(package: str, extra: str, tool: str) -> None:
    """Raise SetupError, with the command that mends it, unless `package` is installed."""
    if importlib.util.find_spec(package) is None:
        raise SetupError(
            f"the tool {tool!r} needs {package}, which is not installed: "
            f"pip install 'caesura[{extra}]'"
        )
