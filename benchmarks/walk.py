"""How many files a reader passes who follows one chat completion, one pause and one `caesura run`.

Each walk runs under a profiler, which sees every call of a function of ours: the distinct files,
the distinct functions, the calls, and how often a call led into another file. Modules' own code,
which runs once at their import, does not count.

- **chat**: a streamed completion with one server tool, through HTTP, over `ScriptedEngine`, which
  does not count.
- **pause**: one call on vLLM's scheduler, with swap and records, over a fake model runner.
- **run**: `caesura run` of two models on stand-ins of engines.

`--engine` also starts the bundled model on vLLM and walks a completion on it. It names the
asynchronous generators through which a token passes on its way to the client.
"""

import argparse
import asyncio
import inspect
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import aiohttp
from rich.console import Console
from rich.table import Table

import caesura
from caesura.planning.run.host import EngineHost
from caesura.runtime.cli.plan.options import PlanOptions
from caesura.runtime.cli.plan.run import RunOptions, run_application
from caesura.runtime.engine import Engine
from caesura.runtime.launch import start_engine
from caesura.runtime.server import create_app
from caesura.runtime.server.listen import listening
from caesura.runtime.testing import ScriptedEngine, call
from caesura.tools.registry import Registry
from caesura.tools.tool import tool

if TYPE_CHECKING:
    from tests.scheduler.world import Session

TOKENS = 64
TOKENS_SEEN = 4
"""A generator that hands on so many things is one through which tokens pass."""
PACKAGE = Path(caesura.__file__).parent
ROOMS = tuple(f"{path.resolve()}/" for path in PACKAGE.iterdir() if path.is_dir())
NOT_OURS = f"{(PACKAGE / 'runtime' / 'testing').resolve()}/"


class Walk:
    """Counts what was entered. A thread has a path of its own; all are counted together."""

    def __init__(self) -> None:
        """Start with nothing entered."""
        self.entered: Counter[CodeType] = Counter()
        self.yields: Counter[CodeType] = Counter()
        self.changes = 0
        self._ours: dict[CodeType, str] = {}
        self._starts: dict[CodeType, int] = {}
        self._last = threading.local()

    @property
    def files(self) -> set[str]:
        return {self._ours[code] for code in self.entered}

    def include(self, other: "Walk") -> None:
        """Count another walk as a part of this one."""
        self.entered += other.entered
        self.changes += other.changes
        self._ours |= other._ours

    def generators(self, least: int) -> list[str]:
        """Return the asynchronous generators of ours that handed on so many things or more."""
        return sorted(
            f"{Path(self._ours[code]).relative_to(PACKAGE.resolve().parents[1])}:{code.co_name}"
            for code, count in self.yields.items()
            if count >= least
        )

    @contextmanager
    def walking(self) -> Iterator[None]:
        """Count in every thread that runs or starts meanwhile."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "return" and code.co_flags & inspect.CO_ASYNC_GENERATOR:
            # What an asynchronous generator hands on comes wrapped; what it awaits does not.
            if type(argument).__name__ == "async_generator_wrapped_value" and self._file(code):
                self.yields[code] += 1
        elif event == "call" and (file := self._file(code)):
            # A generator or a coroutine that goes on where it stood is not entered again.
            if frame.f_lasti != self._starts.setdefault(code, frame.f_lasti):
                return
            self.entered[code] += 1
            if getattr(self._last, "file", file) != file:
                self.changes += 1
            self._last.file = file

    def _file(self, code: CodeType) -> str:
        file = self._ours.get(code)
        if file is None:
            path = str(Path(code.co_filename).resolve())
            ours = path.startswith(ROOMS) and not path.startswith(NOT_OURS)
            file = self._ours[code] = path if ours and code.co_name != "<module>" else ""
        return file


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def ask(url: str, model: str, content: str) -> None:
    """Ask for a streamed completion with the tool, and read it to its end."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "server_tools": ["double"],
        "stream": True,
        "max_tokens": TOKENS,
    }
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/v1/chat/completions", json=body) as response,
    ):
        text = await response.text()
        if response.status != 200:
            raise RuntimeError(f"the server answered {response.status}: {text}")


async def walk_chat(engine: Engine, content: str) -> Walk:
    """Walk one completion; one before it has started what starts once."""
    walk = Walk()
    app = create_app(engine, Registry([double]))
    async with listening(app) as port:
        url = f"http://127.0.0.1:{port}"
        await ask(url, engine.model, content)
        with walk.walking():
            await ask(url, engine.model, content)
    return walk


async def walk_scripted() -> Walk:
    """Walk a completion without vLLM: a call, and an answer of many pieces behind its result."""
    answer = "It is forty-two, as everybody knows. " * 20
    return await walk_chat(ScriptedEngine([call("double", number=21), answer] * 2), "21 twice?")


async def walk_engine() -> Walk:
    """Walk a completion of the bundled model, through the engine's client."""
    engine = await start_engine()
    try:
        return await walk_chat(engine, "What is 17 + 4?")
    finally:
        await engine.close()


def walk_pause(add: Callable[[str, Walk], None]) -> None:
    """Walk a pause, phase by phase, and then as a whole."""
    from tests.scheduler.world import World, make_scheduler  # it starts vLLM: not for `--help`

    world = World(make_scheduler(host_blocks=50))
    whole = Walk()

    def phase(name: str, does: Callable[[], object]) -> None:
        walk = Walk()
        with walk.walking():
            does()
        add(f"pause: {name}", walk)
        whole.include(walk)

    def session(name: str) -> "Session":
        return world.session(name, range(40), "sum [calc(1+2) ->", " 3]", " done")

    def until_it_pauses(paused: "Session") -> None:
        """Take all steps but the one in which the call ends."""
        while len(paused.delivered) < len(paused.parts[0]) - 1:
            world.step()

    warm = session("warm")
    world.run()
    assert warm.finished
    paused = session("walked")
    phase("the request arrives", world.step)
    until_it_pauses(paused)
    phase("the step in which the call ends", world.step)
    assert paused.paused
    phase("a later step", world.step)
    phase("its result arrives", lambda: world.answer(paused))
    phase("the step that admits it again", world.step)
    add("pause: all of it", whole)


def walk_run() -> Walk:
    """Walk `caesura run` of two models, planned with made-up costs, on stand-ins of engines."""
    from tests.planning.run.engines import FakeHost
    from tests.runtime.cli.made_up import APPLICATION, MadeUpCosts

    async def host(devices: int, logs: Path) -> EngineHost:
        return FakeHost(devices)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name  # it is recorded for the page
        (folder / "prompts.txt").write_text("one\ntwo\nthree\n")
        (folder / "app.toml").write_text(APPLICATION)
        walk = Walk()
        with walk.walking():
            run_application(
                folder / "app.toml",
                PlanOptions(devices=2, draws=1),
                RunOptions(folder / "out.jsonl", quiet=True),
                costs=MadeUpCosts,
                make_host=host,
            )
    return walk


def main() -> None:
    """Take the walks, and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", action="store_true", help="also walk the bundled model")
    parser.add_argument("--files", action="store_true", help="also list the files of each walk")
    options = parser.parse_args()
    console, table = Console(width=100), Table(title="What a reader enters")
    for column in ("walk", "files", "functions", "calls", "changes of file"):
        table.add_column(column, justify="left" if column == "walk" else "right")

    def add(name: str, walk: Walk) -> None:
        numbers = (len(walk.files), len(walk.entered), walk.entered.total(), walk.changes)
        table.add_row(name, *map(str, numbers))
        if options.files:
            console.print(f"[bold]{name}[/]", *sorted(walk.files), sep="\n  ")

    add("chat completion, API side", asyncio.run(walk_scripted()))
    walk_pause(add)
    add("caesura run", walk_run())
    if options.engine:
        walked = asyncio.run(walk_engine())
        add("chat completion, with the engine's client", walked)
        names = walked.generators(TOKENS_SEEN)
        console.print(f"A token passes {len(names)} generators:", *names, sep="\n  ")
    console.print(table)


if __name__ == "__main__":
    main()
