"""Tests leave the user's own files alone: calibrations, and what is known of tools' pauses."""

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
OURS = tempfile.TemporaryDirectory(prefix="caesura-tests-")

# vLLM's cache stays where it is: without it every start of an engine takes seconds longer.
os.environ.setdefault("VLLM_CACHE_ROOT", str(CACHE / "vllm"))
os.environ["XDG_CACHE_HOME"] = str(Path(OURS.name, "cache"))
os.environ["XDG_STATE_HOME"] = str(Path(OURS.name, "state"))
os.environ["XDG_DATA_HOME"] = str(Path(OURS.name, "data"))
os.environ["XDG_CONFIG_HOME"] = str(Path(OURS.name, "config"))


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Wait, for half a minute at most, until a condition holds."""

    async def wait(condition: Callable[[], Any]) -> None:
        for _ in range(15_000):
            if condition():
                return
            await asyncio.sleep(0.002)
        raise TimeoutError

    return wait
