"""Servers that die and are started again over one journal, with scripted engines."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack
from typing import Any

import pytest

from caesura.runtime.journal import writer
from caesura.runtime.server import create_app
from caesura.runtime.server.listen import listening
from caesura.runtime.testing import ScriptedEngine
from caesura.tools.registry import Registry
from tests.kit.server import MODEL, settings
from tests.runtime.journal.dying import LoggingEngine, Server


@pytest.fixture
def written_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs end with a write, as when the lease is not fresh: then journals are whole."""
    monkeypatch.setattr(writer, "FRESH_SECONDS", 0.0)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Any]]:
    """Start servers; all are taken down after the test."""
    async with AsyncExitStack() as stack:

        async def start(
            script: Any, tools: Collection[Any] = (), journal: Any = None, **options: Any
        ) -> Server:
            engine = script if isinstance(script, ScriptedEngine) else None
            engine = engine or LoggingEngine(script, model=MODEL)
            app = create_app(engine, Registry(tools), *settings(journal=journal, **options))
            port = await stack.enter_async_context(listening(app, shutdown_timeout=0.1))
            server = Server(engine, app, port, journal)
            stack.push_async_callback(server.http.close)
            return server

        yield start
