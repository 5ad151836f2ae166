"""Starting an engine with progress in the terminal."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from rich.console import Console

from caesura.runtime.engine import Engine
from caesura.runtime.launch import LOG as LAUNCH_LOG
from caesura.runtime.launch import start
from caesura.scheduler.engine_options import EngineOptions


@asynccontextmanager
async def engine_on(options: EngineOptions) -> AsyncIterator[Engine]:
    """Start an engine under a spinner, and close it at the end; see `start`.

    Where stderr is no terminal, lines tell of the start instead. Raises `EngineFailed` and
    `UsageError`.
    """
    name = Path(options.model).name if options.model else "the bundled model"
    console = Console(stderr=True)
    spinner = console.status(f"starting vLLM with {name} ...")
    with spinner if console.is_terminal else _lines():
        engine = await start(options)
    try:
        yield engine
    finally:
        await engine.close()


@contextmanager
def _lines() -> Iterator[None]:
    """Write what the log tells of an engine's start to stderr, whatever level the log has."""
    handler, level = logging.StreamHandler(), LAUNCH_LOG.level
    LAUNCH_LOG.addHandler(handler)
    LAUNCH_LOG.setLevel(logging.INFO)
    propagates, LAUNCH_LOG.propagate = LAUNCH_LOG.propagate, False
    try:
        yield
    finally:
        LAUNCH_LOG.removeHandler(handler)
        LAUNCH_LOG.setLevel(level)
        LAUNCH_LOG.propagate = propagates
