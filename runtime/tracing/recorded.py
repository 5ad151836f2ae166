"""Recording what an engine does, by options and the configuration."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from caesura.distribution import __version__
from caesura.runtime.engine import Engine
from caesura.runtime.launch import facts_of, record
from caesura.runtime.recording.entries import ARTIFACTS
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import DAY_SECONDS, MB, Bounds, Store
from caesura.runtime.tracing.content import is_captured
from caesura.runtime.tracing.masking import Mask, masking
from caesura.tools.config.caesura_toml import Config
from caesura.tools.config.functions import imported


class TraceOptions(Protocol):
    """What is wished of a recording; the configuration says what is left open."""

    @property
    def file(self) -> Path | None:
        """Return the file, which turns recording on."""
        ...

    @property
    def off(self) -> bool:
        """Return whether nothing is recorded."""
        ...

    @property
    def content(self) -> bool:
        """Return whether texts of users, models and tools are recorded too."""
        ...

    @property
    def title(self) -> str | None:
        """Return the recording's title."""
        ...


@dataclass(frozen=True, slots=True)
class GivenTraces:
    """The options of a program without a command line of its own."""

    file: Path | None = None
    off: bool = False
    content: bool = False
    title: str | None = None


@asynccontextmanager
async def recorded(
    engine: Engine,
    traces: TraceOptions,
    config: Config,
    title: str,
    source: str,
    about: Mapping[str, Any] | None = None,
) -> AsyncIterator[Recorder | None]:
    """Yield a recorder that gets the engine's records; None if recording is off.

    The options or the configuration may call the recording something else than `title`. The
    configuration's mask is over all that is recorded or sent meanwhile.
    """
    with masking(mask_of(config)):
        async with _recorded(engine, traces, config, title, source, about) as recorder:
            yield recorder


@asynccontextmanager
async def _recorded(
    engine: Engine,
    traces: TraceOptions,
    config: Config,
    title: str,
    source: str,
    about: Mapping[str, Any] | None,
) -> AsyncIterator[Recorder | None]:
    if traces.off or not (config.trace.enabled or traces.file):
        yield None
        return
    facts = {"version": __version__, **await facts_of(engine), **(about or {})}
    facts[ARTIFACTS] = str(config.services().artifacts.directory)
    store = store_of(config, traces.file)
    title = (traces.title or config.trace.title or title).strip()
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
    """Return the given file of recordings, else the configured one, else the user's own."""
    bounds = Bounds(int(config.trace.max_mb * MB), config.trace.max_days * DAY_SECONDS)
    return Store(file or config.trace_path, bounds)


def mask_of(config: Config) -> Mask | None:
    """Return the mask that a configuration names.

    Raises `SetupError` for one that cannot be imported, and `UsageError` for one that is no
    function.
    """
    named = config.trace.mask
    if named is None:
        return None
    folder = None if config.path is None else config.path.parent
    return Mask(imported(named, folder), named)
