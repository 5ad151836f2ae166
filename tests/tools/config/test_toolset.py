"""The tools of a process: made, started, approved, ended."""

import asyncio
from pathlib import Path

import pytest

from caesura.distribution import install
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.config import toolset as module
from caesura.tools.config.toolset import BUILTINS, Builtin, Toolset
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.people import people_of
from caesura.tools.result import ToolCall
from caesura.tools.services import Services, SetupError, ToolSettings, require
from caesura.tools.tool import Tool
from tests.kit.waiting import until


@pytest.fixture
def services(tmp_path):
    return Services(ArtifactStore(tmp_path / "artifacts"), tmp_path / "data")


def named(name: str, **options: object) -> Tool:
    async def call() -> str:
        return f"{name} ran"

    return Tool.from_schema(name, "", {"type": "object"}, call, **options)


class Source:
    """A source whose tools change, and which tells what happens to it."""

    def __init__(self, name: str, log: list[str], *, fails: bool = False) -> None:
        self.name, self.prefix, self.fails = name, False, fails
        self.log = log
        self.tools: tuple[Tool, ...] = ()
        self.changed = lambda: None

    async def start(self) -> list[Tool]:
        self.log.append(f"start {self.name}")
        await asyncio.sleep(0)
        if self.fails:
            raise SetupError(f"{self.name} does not start")
        self.tools = (named("read"),)
        return list(self.tools)

    def watch(self, changed):
        self.changed = changed
        return lambda: self.log.append(f"unwatch {self.name}")

    async def aclose(self) -> None:
        self.log.append(f"close {self.name}")


async def test_the_default_is_what_works_without_settings(services, monkeypatch):
    class Needs:
        Settings = ToolSettings

        @staticmethod
        def make(settings: ToolSettings, services: Services) -> Tool:
            require("no_such_package", "search", "search")
            raise AssertionError("never reached")

    monkeypatch.setitem(BUILTINS, "search", Builtin("search", "caesura.needs", "needs a package"))
    real = module.importlib.import_module
    monkeypatch.setattr(
        module.importlib,
        "import_module",
        lambda name: Needs if name == "caesura.needs" else real(name),
    )
    async with Toolset(services, enabled=None) as toolset:
        assert {"calculator", "clock"} <= set(toolset.registry.names)
        assert "search" not in toolset.registry
        assert install("search") in toolset.off["search"]
        assert toolset.off["generate_image"] == "needs [tools.generate_image] in the configuration"
    with pytest.raises(SetupError, match="no_such_package, which is not installed"):
        await Toolset(services, enabled=["search"]).start()
    with pytest.raises(SetupError, match="no_such_package"):
        await Toolset(services, {"search": {}}, enabled=None).start()


def test_every_builtin_can_be_asked_for_and_the_unknown_is_named(services):
    toolset = Toolset(services)
    assert toolset.make("calculator") is toolset.make("calculator")
    with pytest.raises(SetupError, match="unknown key 'calculater'; did you mean 'calculator'"):
        toolset.make("calculater")


def test_settings_change_the_tool(services):
    given = {"timeout_seconds": 3, "concurrency": 2, "breaker": 4, "approval": True}
    tool = Toolset(services, {"clock": given}).make("clock")
    assert (tool.timeout_seconds, tool.concurrency, tool.breaker) == (3, 2, 4)
    assert tool.approval


async def test_relative_paths_in_settings_are_the_configurations(services, monkeypatch):
    seen: list[Path | None] = []

    class Settings(ToolSettings):
        voice: Path | None = None

    class Voiced:
        @staticmethod
        def make(settings: Settings, services: Services) -> Tool:
            seen.append(settings.voice)
            return named("speak")

    Voiced.Settings = Settings
    monkeypatch.setattr(module.importlib, "import_module", lambda name: Voiced)
    origin = Path("/etc/caesura/caesura.toml")
    for given in ({"voice": "a/b.onnx"}, {"voice": "/c.onnx"}, {}):
        Toolset(services, {"speak": given}, origin=origin).make("speak")
    assert seen == [Path("/etc/caesura/a/b.onnx"), Path("/c.onnx"), None]


async def test_the_registry_follows_its_sources(services):
    source = Source("files", [])
    async with Toolset(services, enabled=["clock"], sources=[source]) as toolset:
        session = toolset.registry.select(toolset.registry.names)
        source.tools = (*source.tools, named("clock"))
        source.changed()
        assert toolset.registry.names == ("clock", "read", "files_clock")
        assert session.names == ("clock", "read")


async def test_what_was_started_ends_last_first(services):
    log: list[str] = []

    async def close() -> None:
        log.append("close service")

    services.at_end(close)
    toolset = Toolset(services, sources=[Source("a", log), Source("b", log)])
    async with toolset:
        assert log == ["start a", "start b"]
        assert toolset.registry.names == ("read", "b_read")
    await toolset.aclose()
    assert log[2:] == ["unwatch b", "unwatch a", "close b", "close a", "close service"]


async def test_one_that_must_start_and_does_not_ends_the_others(services):
    log: list[str] = []
    toolset = Toolset(services, sources=[Source("a", log), Source("b", log, fails=True)])
    with pytest.raises(SetupError, match="b does not start"):
        await toolset.start()
    assert log == ["start a", "start b", "close a"]


async def test_a_start_that_is_cancelled_ends_what_had_started(services):
    log: list[str] = []
    slow = Source("b", log)

    async def never() -> list[Tool]:
        log.append("start b")
        await asyncio.sleep(600)
        raise AssertionError

    slow.start = never
    start = asyncio.ensure_future(Toolset(services, sources=[Source("a", log), slow]).start())
    await until(lambda: "start b" in log)
    start.cancel()
    await asyncio.wait([start])
    assert start.cancelled()
    assert log == ["start a", "start b", "close a"]


async def test_a_person_is_asked_before_a_tool_that_says_so(services):
    asked: list[str] = []

    async def approve(item) -> bool:
        asked.append(item.tool)
        return len(asked) == 1

    async with Toolset(services, {"clock": {"approval": True}}, enabled=["clock"]) as toolset:
        people_of(services).on_approval = approve
        async with Dispatcher(toolset.registry) as dispatcher:
            results = [
                await dispatcher.run(ToolCall(f"{number}", "clock", arguments))
                for number, arguments in enumerate(("{}", '{"timezone": "Z"}'))
            ]
    assert asked == ["clock", "clock"]
    assert [result.error for result in results] == [None, "failed"]
