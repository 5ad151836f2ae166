"""Starting an engine with progress in the terminal."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from caesura.runtime.engine import Engine
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

    Raises `EngineFailed` and `UsageError`.
    """
    name = Path(model).name if model else "the bundled model"
    with Console(stderr=True).status(f"starting vLLM with {name} ..."):
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
