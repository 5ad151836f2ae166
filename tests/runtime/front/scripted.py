"""A server of the tests: the real application over a scripted engine, in a replica of Ray Serve."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from caesura.runtime.server import ServerOptions, create_app
from caesura.runtime.server.app import Application
from caesura.runtime.testing import ScriptedEngine
from caesura.scheduler.messages import Message, ToolSpec
from caesura.tools.registry import Registry

MODEL = "tiny/scripted"
WAIT = "Wait until you are cancelled: "


@asynccontextmanager
async def scripted_server(folder: Path, server: str) -> AsyncIterator[Application]:
    """Open a server whose model says its server's name, or waits and tells that in `folder`."""

    async def say(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        text = str(messages[-1]["content"])
        if text.startswith(WAIT):
            name = text.removeprefix(WAIT)
            (folder / f"{name}.begun").write_text(server)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                (folder / f"{name}.cancelled").touch()
                raise
        return server

    engine = ScriptedEngine(say, model=MODEL)
    app = create_app(engine, Registry(()), ServerOptions(server_name=server))
    await app.start()
    try:
        yield app
    finally:
        await app.leave()
        await app.close()
