"""What commands record while they run, as options and configuration say."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura import __version__
from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.runtime.launch import facts_of, record
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage.bounds import DAY_SECONDS, MB, Bounds
from caesura.runtime.recording.storage.database import may_be_one
from caesura.runtime.recording.storage.store import Store
from caesura.runtime.tracing.content import is_captured
from caesura.tools.config.caesura_toml import Config


@dataclass(frozen=True, slots=True)
class Traces:
    """What the options say: a file, that nothing is recorded, that what is said is."""

    file: Path | None = None
    off: bool = False
    content: bool = False

    def check(self) -> None:
        """Find mistakes that do not take an engine to find; raises `UsageError`."""
        if self.off and (self.file is not None or self.content):
            raise UsageError("--no-trace records nothing: leave it, or --trace, out")
        if self.file is not None and not self.file.absolute().parent.is_dir():
            raise UsageError(f"there is no directory {self.file.absolute().parent}")
        if self.file is not None and not may_be_one(self.file):
            raise UsageError(f"{self.file} is no file of traces: name another, or move it away")


@asynccontextmanager
async def recorded(
    engine: Engine,
    traces: Traces,
    config: Config,
    title: str,
    source: str,
    about: Mapping[str, Any] | None = None,
) -> AsyncIterator[Recorder | None]:
    """Record what the engine and the runs do from now on; None where nothing is recorded."""
    if traces.off or not (config.trace.enabled or traces.file):
        yield None
        return
    facts = {"version": __version__, **await facts_of(engine), **(about or {})}
    store = store_of(config, traces.file)
    content = traces.content or config.trace.content or is_captured(os.environ)
    recorder = await asyncio.to_thread(
        lambda: Recorder(store, title, source, facts, content=content)
    )
    stop = record(engine, recorder)
    try:
        yield recorder
    finally:
        stop()
        await asyncio.to_thread(recorder.close)


def store_of(config: Config, file: Path | None = None) -> Store:
    """The file of recordings that is named, else configured, else the user's own."""
    bounds = Bounds(int(config.trace.max_mb * MB), config.trace.max_days * DAY_SECONDS)
    return Store(file or config.trace_path, bounds)
