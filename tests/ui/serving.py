"""An endpoint with a store of recordings, behind a cable that can be cut."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from caesura.runtime.launch import record
from caesura.runtime.recording.entries import Entry, Recording, row_of
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.testing import ScriptedEngine
from caesura.runtime.trajectories.kept import KeptSessions
from caesura.runtime.whatif.replays import Replays
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.people import People
from caesura.tools.registry import Registry
from tests.kit.server import MODEL
from tests.kit.waiting import until


class Cable:
    """Carries bytes between a port of its own and the server's; while it is cut, nobody gets in."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def mend(self) -> None:
        """Carry again, on the same port as before."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Break off what is under way and take nothing new."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        self._server = None

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward = await asyncio.open_connection("127.0.0.1", self._to)
        self._open |= {writer, onward}
        try:
            await asyncio.gather(_pump(reader, onward), _pump(onward_reader, writer))
        finally:
            self._open -= {writer, onward}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.close()


class Endpoint:
    """A served application, its recorder, and a client of it."""

    def __init__(self, model: str, recorder: Recorder, cable: Cable, key: str | None) -> None:
        self.model = model
        self.recorder = recorder
        self.cable = cable
        self.url = f"http://127.0.0.1:{cable.port}"
        self.ui = f"{self.url}/ui/"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def ask(
        self, question: str = "Hello", *server_tools: str, **fields: Any
    ) -> dict[str, Any]:
        """Have the engine answer a question; `fields` are further ones of the request."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": question}],
            "server_tools": list(server_tools),
            **fields,
        }
        async with (
            aiohttp.ClientSession(self.url, headers=self._headers) as http,
            http.post("/v1/chat/completions", json=body) as answer,
        ):
            assert answer.status == 200, await answer.text()
            answered: dict[str, Any] = await answer.json()
            return answered

    async def written(self, entries: list[Entry]) -> None:
        """Record entries, and wait until they are in the store."""
        before = self.recorder.written
        self.recorder.add(entries)
        await until(lambda: self.recorder.written >= before + len(entries))


def keep(store: Store, recording: Recording, entries: Iterable[Entry]) -> int:
    """Put a recording that has ended into a store; return its number."""
    number = store.begin(
        recording.title,
        recording.source,
        recording.about,
        content=recording.content,
        started=recording.started,
    )
    rows = [row_of(entry) for entry in entries]
    for start in range(0, len(rows), 1000):
        store.append(number, rows[start : start + 1000])
    store.end(number, recording.ended)
    return number


async def serve(
    stack: AsyncExitStack,
    folder: Path,
    script: Any = (),
    tools: Iterable[Any] = (),
    *,
    held: Iterable[tuple[Recording, Iterable[Entry]]] = (),
    key: str | None = None,
    content: bool = False,
    artifacts: ArtifactStore | None = None,
    people: People | None = None,
    replays: Callable[[Store], Replays] | None = None,
    sessions: KeptSessions | None = None,
) -> Endpoint:
    """Serve a script, or an engine; `held` are recordings of former runs, which the store has.

    `replays` makes the what-ifs of that store.
    """
    engine = script if hasattr(script, "open") else ScriptedEngine(script, model=MODEL)
    store = Store(folder / "traces.sqlite")
    for recording, entries in held:
        keep(store, recording, entries)
    about = {"model": engine.model} | ({} if sessions is None else {"trajectories": True})
    recorder = Recorder(store, "the live run", "serve", about, content=content)
    stack.callback(recorder.close)
    stack.callback(record(engine, recorder))
    app = create_app(
        engine,
        Registry(tools),
        ServerOptions(api_key=key),
        ServerParts(
            recorder=recorder,
            artifacts=artifacts,
            people=people,
            sessions=sessions,
            replays=None if replays is None else replays(store),
        ),
    )
    port = await stack.enter_async_context(listening(app, shutdown_timeout=0.1))
    cable = Cable(port)
    await cable.mend()
    stack.push_async_callback(cable.cut)
    return Endpoint(engine.model, recorder, cable, key)


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Endpoint]]]:
    """Serve recordings; see `serve`."""
    async with AsyncExitStack() as stack:
        yield partial(serve, stack, tmp_path)
