"""Names of tools that come from several places."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from caesura.tools.registry import Registry
from caesura.tools.source import Combined, ToolSource, free_name, valid_name
from caesura.tools.tool import Tool


def named(name: str) -> Tool:
    async def call() -> None:
        return None

    return Tool.from_schema(name, "", {"type": "object"}, call)


class Fixed:
    """A source that is there."""

    def __init__(self, name: str, *names: str, prefix: bool = False) -> None:
        self.name, self.prefix = name, prefix
        self.tools = tuple(map(named, names))

    async def start(self) -> list[Tool]:
        return list(self.tools)

    def watch(self, changed: object) -> Callable[[], None]:
        return lambda: None

    async def aclose(self) -> None:
        pass


def test_names_are_kept_unless_they_collide():
    sources = [
        Fixed("a", "search", "read"),
        Fixed("b", "read", "b_read"),
        Fixed("c", "x", prefix=True),
    ]
    assert all(isinstance(source, ToolSource) for source in sources)
    tools = Combined([named("search")], sources).tools()
    assert [tool.name for tool in tools] == [
        "search",
        "a_search",
        "read",
        "b_read",
        "b_b_read",
        "c_x",
    ]


def test_tools_that_did_not_change_are_the_same_objects():
    source = Fixed("a", "search", "read")
    wrapped: list[str] = []

    def wrap(tool: Tool) -> Tool:
        wrapped.append(tool.name)
        return tool

    combined = Combined([named("search")], [source], wrap)
    before = combined.tools()
    source.tools = (*source.tools, named("new"))
    assert combined.tools()[:3] == before
    assert wrapped == ["search", "a_search", "read", "new"]


@given(st.text(max_size=100))
def test_any_text_becomes_a_valid_name(text):
    name = valid_name(text)
    assert Registry([named(name)]).names == (name,)
    assert valid_name(name) == name


@given(st.lists(st.text(max_size=80), max_size=8))
def test_free_names_differ(texts):
    taken: dict[str, Tool] = {}
    for text in texts:
        name = free_name(text, taken)
        taken[name] = named(name)
    assert len(taken) == len(texts)
    assert len(Registry(taken.values())) == len(texts)
