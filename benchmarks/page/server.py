"""A server with traffic, in a process of its own: `python -m benchmarks.page.server FOLDER...`.

Each folder holds a built page, which is served on a port of its own; recorder, store and routes of
the trace are those of `caesura serve`, and the same for all. When the former sessions are in the
store, a line of JSON tells the ports, and the crowd goes on in real time until stdin is closed.
"""

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from starlette.responses import Response

from benchmarks.page.crowd import TICK_SECONDS, Crowd
from benchmarks.page.life import BLOCK_TOKENS, KV_BLOCKS, MEAN_SECONDS, MODEL
from benchmarks.page.pages import Built
from caesura.runtime.recording.entries import Entry
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Bounds, Store
from caesura.runtime.server import create_app
from caesura.runtime.server.app import Application, ServerParts
from caesura.runtime.server.listen import allow_thread_switches, listening
from caesura.runtime.testing import ScriptedEngine
from caesura.tools.registry import Registry

TYPES = {"": "text/html", "ui.js": "text/javascript", "ui.css": "text/css"}


class WithPage:
    """An application with another page under /ui/."""

    def __init__(self, app: Application, built: Built) -> None:
        page = built.page
        self._app = app
        self._files = {"": page.html, "ui.js": page.script, "ui.css": page.styles}

    def __getattr__(self, name: str) -> Any:
        """Start and end as the application does."""
        return getattr(self._app, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        name = path.removeprefix("/ui/")
        if not path.startswith("/ui/") or name not in TYPES:
            return await self._app(scope, receive, send)
        return await Response(self._files[name], media_type=TYPES[name])(scope, receive, send)


async def fill(recorder: Recorder, crowd: Crowd, sessions: int) -> None:
    """Record former sessions; the recorder must not lose any entry."""
    waiting: list[Entry] = []
    for entries in crowd.sessions(sessions):
        waiting += entries
        if len(waiting) > 4000 or crowd.ended >= sessions:
            await written(recorder, waiting)
            waiting = []


async def written(recorder: Recorder, entries: list[Entry]) -> None:
    """Record entries, and wait until they are in the store."""
    goal = recorder.written + len(entries)
    recorder.add(entries)
    while recorder.written < goal:  # noqa: ASYNC110 - the recorder's thread tells nobody
        await asyncio.sleep(0.02)


async def go_on(recorder: Recorder, crowd: Crowd, ahead: float) -> None:
    """Record what the crowd does from now on, in real time; its clock is `ahead` of the wall."""
    while True:
        recorder.add(crowd.until(time.time() + ahead))
        await asyncio.sleep(TICK_SECONDS)


async def serve(folders: list[Path], sessions: int, concurrent: int) -> None:
    """Serve until stdin is closed."""
    allow_thread_switches()
    engine = ScriptedEngine([], model=MODEL)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = Store(Path(folder, "traces.sqlite"), Bounds(2**30))
        facts = {
            "model": MODEL,
            "handling": "caesura",
            "block_size": BLOCK_TOKENS,
            "total_blocks": KV_BLOCKS,
        }
        recorder = Recorder(store, "the crowd", "serve", facts)
        stack.callback(recorder.close)
        crowd = Crowd(concurrent, time.time() - sessions * MEAN_SECONDS / max(concurrent, 1))
        await fill(recorder, crowd, sessions)
        ports = []
        for each in folders:
            app = create_app(engine, Registry(()), parts=ServerParts(recorder=recorder))
            served = WithPage(app, Built(each.name, each))
            ports.append(await stack.enter_async_context(listening(served, shutdown_timeout=0.1)))  # type: ignore[arg-type]
        said = {"ports": ports, "sessions": crowd.ended, "entries": recorder.written}
        print(json.dumps(said), flush=True)
        # What the history is ahead or behind of the wall clock stays as it is: no time is missing.
        going = asyncio.create_task(go_on(recorder, crowd, crowd.now - time.time()))
        await asyncio.to_thread(sys.stdin.read)
        going.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", help="folders with a built page")
    parser.add_argument("--sessions", type=int, default=10_000, help="sessions that have ended")
    parser.add_argument("--concurrent", type=int, default=60, help="requests at once")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(serve(given.folders, given.sessions, given.concurrent))
