"""Starting an engine with progress in the terminal."""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from caesura.runtime.engine import Engine
from caesura.runtime.launch import LOG as LAUNCH_LOG
from caesura.runtime.launch import start_engine


@asynccontextmanager
async def engine_on(
    model: str | None,
    formats: Sequence[str] | None,
    vllm_args: Sequence[str],
    served_name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    connector: Mapping[str, Any] | None = None,
    splice: bool = True,
    thinking_as_text: bool = False,
    special_tokens_in_text: bool = False,
    serves: bool = False,
) -> AsyncIterator[Engine]:
    """Start an engine under a spinner, and close it at the end; see `start_engine`.

    Where stderr is no terminal, lines tell of the start instead. Raises `EngineFailed` and
    `UsageError`.
    """
    name = Path(model).name if model else "the bundled model"
    console = Console(stderr=True)
    spinner = console.status(f"starting vLLM with {name} ...")
    with spinner if console.is_terminal else _lines():
        engine = await start_engine(
            model,
            formats=formats,
            vllm_args=vllm_args,
            served_name=served_name,
            settings=settings,
            connector=connector,
            splice=splice,
            thinking_as_text=thinking_as_text,
            special_tokens_in_text=special_tokens_in_text,
            serves=serves,
        )
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
