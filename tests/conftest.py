"""Tests leave the user's own files alone: calibrations, and what is known of tools' pauses."""

import ast
import logging
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from caesura.runtime.recording import recorder

# What the tests share tells its values too, when it does not hold.
FOLDERS = [each.name for each in Path(__file__).parent.iterdir() if each.is_dir()]
pytest.register_assert_rewrite(*(f"tests.{folder}" for folder in FOLDERS))

from tests.kit.postgres import database, postgres  # noqa: E402, F401

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
OURS = tempfile.TemporaryDirectory(prefix="caesura-tests-")

# vLLM's cache stays where it is: without it every start of an engine takes seconds longer.
os.environ.setdefault("VLLM_CACHE_ROOT", str(CACHE / "vllm"))
os.environ["XDG_CACHE_HOME"] = str(Path(OURS.name, "cache"))
os.environ["XDG_STATE_HOME"] = str(Path(OURS.name, "state"))
os.environ["XDG_DATA_HOME"] = str(Path(OURS.name, "data"))
os.environ["XDG_CONFIG_HOME"] = str(Path(OURS.name, "config"))

# A busy machine may stop a process for seconds: no example has a deadline, no data is too slow.
settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")

recorder.CLOSE_SECONDS = 60.0
"""A recorder whose thread gets no processor for a while still writes what it has."""


@pytest.fixture
def mixed_up_trees(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let `ast.parse` fail twice as it does beside other threads; return what it is given."""
    parse, given = ast.parse, []

    def mixed_up(source: str, *args: Any, **options: Any) -> ast.AST:
        given.append(source)
        if len(given) < 3:
            raise SystemError("AST constructor recursion depth mismatch (before=24, after=22)")
        return parse(source, *args, **options)

    monkeypatch.setattr(ast, "parse", mixed_up)
    return given


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Let no test hide the warnings of a later one: vLLM's server sets the root logger's level."""
    level = logging.getLogger().level
    try:
        return (yield)
    finally:
        logging.getLogger().setLevel(level)
