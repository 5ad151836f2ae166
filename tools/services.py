"""What the tools of a process share: directories, clean-up at the end, set-up errors."""

import importlib.util
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from caesura.distribution import install
from caesura.tools.artifacts import ArtifactStore


class SetupError(ValueError):
    """A tool cannot be set up as configured. The message says how to fix it."""


class ToolSettings(BaseModel):
    """Settings of `[tools.NAME]` that every tool has; a tool's own settings extend them.

    A field that is left out, or None, keeps the tool's own value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout_seconds: float | None = Field(None, gt=0, description="limit for one attempt")
    retries: int | None = Field(None, ge=0, le=10, description="further attempts after a failure")
    concurrency: int | None = Field(None, ge=1, description="calls at the same time")
    max_result_tokens: int | None = Field(None, ge=1, description="longer results are cut")
    breaker: int | None = Field(None, ge=1, description="failures in a row that suspend the tool")
    approval: bool = Field(False, description="a person must approve each call")


@dataclass(slots=True)
class Services:
    """What all tools of one process share.

    `data` is the directory for files that outlive a restart (corpora, caches, open questions).
    `allow_private` lets HTTP tools reach addresses that are not public.
    """

    artifacts: ArtifactStore
    data: Path
    allow_private: bool = False
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    shared: dict[str, object] = field(default_factory=dict)
    """Objects that several tools share, by name; the first tool that needs one makes it."""

    def at_end(self, close: Callable[[], Awaitable[object]]) -> None:
        """Register `close` to be called when the tools are closed."""
        self.stack.push_async_callback(close)


def require(package: str, extra: str, tool: str) -> None:
    """Raise SetupError, with the install command, unless `package` is installed."""
    if importlib.util.find_spec(package) is None:
        raise SetupError(
            f"the tool {tool!r} needs {package}, which is not installed: {install(extra)}"
        )
