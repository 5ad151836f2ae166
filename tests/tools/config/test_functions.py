"""Python functions as tools, which `caesura.toml` names."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from caesura.tools.config.caesura_toml import Config
from caesura.tools.config.functions import imported
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.result import ToolCall
from caesura.tools.services import SetupError

SHOP = '''
from functools import partial
from caesura.tools import tool
import {helper}

LIST = {{"lamp": 24, "chair": 59}}


def price(item: str) -> int:
    """Look up what an item costs."""
    from {late} import tax
    return LIST[item] + tax()


async def stock(item: str) -> int:
    return {helper}.COUNT


@tool(timeout_seconds=7, safe_to_repeat=True)
def named_otherwise(item: str) -> str:
    """Describe an item."""
    return f"a {{item}}"


class Sums:
    def __call__(self, first: int, second: int) -> int:
        """Add two numbers."""
        return first + second


class Counter:
    async def count(self, things: list[str]) -> int:
        return len(things)


sums = Sums()
more = partial(sums, second=100)
counter = Counter()


def untyped(item):
    return item
'''


@pytest.fixture
def shop(tmp_path: Any, monkeypatch: Any) -> Any:
    """Write a module of its own name beside a configuration; return its name and the folder."""
    number = sum(name.startswith("shop_") for name in sys.modules)
    name, helper, late = (f"{each}_{number}" for each in ("shop", "shelves", "taxes"))
    (tmp_path / "config").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "config" / f"{name}.py").write_text(SHOP.format(helper=helper, late=late))
    (tmp_path / "config" / f"{helper}.py").write_text("COUNT = 3\n")
    (elsewhere / f"{late}.py").write_text("def tax() -> int:\n    return 1\n")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name, tmp_path / "config"


def written(folder: Path, text: str) -> Config:
    (folder / "caesura.toml").write_text(text)
    return Config.load(folder / "caesura.toml")


async def said(toolset: Any, name: str, arguments: str) -> str:
    async with Dispatcher(toolset.registry) as dispatcher:
        result = await dispatcher.run(ToolCall("one", name, arguments))
    assert result.error is None, result.content
    return result.content


async def test_functions_objects_and_partials_are_tools(shop: Any) -> None:
    name, folder = shop
    config = written(
        folder,
        f"""
        [tools]
        enabled = ["price", "stock", "describe", "add", "add_100", "count"]
        [tools.price]
        function = "{name}:price"
        timeout_seconds = 3
        retries = 2
        safe_to_repeat = true
        concurrency = 4
        expected_seconds = 0.5
        [tools.stock]
        function = "{name}:stock"
        description = "Count what is there."
        [tools.describe]
        function = "{name}:named_otherwise"
        [tools.add]
        function = "{name}:sums"
        [tools.add_100]
        function = "{name}:more"
        [tools.count]
        function = "{name}:counter.count"
        """,
    )
    async with config.toolset() as toolset:
        tools = {tool.name: tool for tool in toolset.registry}
        assert list(tools) == ["price", "stock", "describe", "add", "add_100", "count"]
        assert (tools["price"].timeout_seconds, tools["price"].retries) == (3, 2)
        assert (tools["price"].concurrency, tools["price"].expected_seconds) == (4, 0.5)
        assert tools["price"].description == "Look up what an item costs."
        assert tools["stock"].description == "Count what is there."
        assert (tools["describe"].timeout_seconds, tools["describe"].safe_to_repeat) == (7, True)
        assert await said(toolset, "price", '{"item": "lamp"}') == "25"  # its tax is imported late
        assert await said(toolset, "stock", '{"item": "lamp"}') == "3"
        assert await said(toolset, "describe", '{"item": "lamp"}') == "a lamp"
        assert await said(toolset, "add", '{"first": 1, "second": 2}') == "3"
        assert await said(toolset, "add_100", '{"first": 1}') == "101"
        assert await said(toolset, "count", '{"things": ["a", "b"]}') == "2"


async def test_functions_stand_beside_the_built_in_tools_unless_some_are_enabled(shop: Any) -> None:
    name, folder = shop
    table = f'[tools.price]\nfunction = "{name}:price"\napproval = true\n'
    async with written(folder, table).toolset() as toolset:
        assert {"calculator", "price"} <= set(toolset.registry.names)
        asking = toolset.registry.get("price")
        assert asking is not None and asking.approval
    config = written(folder, f'[tools]\nenabled = ["clock"]\n{table}')
    async with config.toolset() as toolset:
        assert toolset.registry.names == ("clock",)
        assert toolset.why_off("price") == "not among the enabled tools"
    async with config.toolset(["price"]) as toolset:
        assert toolset.registry.names == ("price",)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("{name}", "'{name}' names nothing in Python: write \"module:attribute\""),
        ("{name}:", "names nothing in Python"),
        ("/a/{name}.py:price", "names nothing in Python"),
        ("no_{name}:price", "there is no module 'no_{name}' in {folder} or {here}"),
        ("{name}.inner:price", "there is no module '{name}.inner' in"),
        ("{name}:prise", "{folder}/{name}.py) has no 'prise': did you mean 'price'?"),
        ("{name}:counter.amount", "has no 'counter.amount': did you mean 'count'?"),
        ("{name}:LIST", "'{name}:LIST' cannot become a tool: "),
        ("{name}:untyped", "cannot become a tool: "),
        ("wrong_{name}:price", "cannot be imported: ZeroDivisionError: division by zero in "),
        ("wrong_{name}:price", "wrong_{name}.py, line 2"),
        ("unwritten_{name}:price", "cannot be imported: SyntaxError: "),
        ("lacking_{name}:price", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("leaving_{name}:price", "cannot be imported: SystemExit: "),
    ],
)
def test_mistakes_name_what_was_given_and_what_to_do(shop: Any, reference: Any, said: Any) -> None:
    name, folder = shop
    (folder / f"wrong_{name}.py").write_text("\n1 / 0\n")
    (folder / f"unwritten_{name}.py").write_text("def price(\n")
    (folder / f"lacking_{name}.py").write_text("import no_such_package\n")
    (folder / f"leaving_{name}.py").write_text("raise SystemExit('wrong use')\n")
    config = written(folder, f'[tools.price]\nfunction = "{reference.format(name=name)}"\n')
    with pytest.raises(SetupError) as raised:
        config.toolset().make("price")
    message = str(raised.value)
    assert message.startswith(str(folder / "caesura.toml"))
    assert said.format(name=name, folder=folder, here=Path.cwd()) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tools.prise]\nfunctoin = "a:b"', "a Python function needs [tools.prise] function"),
        ('[tools.clock]\nfunction = "a:b"', "'clock' is a built-in tool: give the function 'a:b'"),
        ('[tools."two words"]\nfunction = "a:b"', "'two words' is no name of a tool"),
        ('[tools]\nenabled = ["prize"]\n[tools.price]\nfunction = "a:b"', "did you mean 'price'?"),
    ],
)
def test_mistakes_are_told_before_anything_is_imported(tmp_path: Any, text: Any, said: Any) -> None:
    with pytest.raises(SetupError) as raised:
        written(tmp_path, text)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("timeout = 3", "unknown key 'timeout'; did you mean 'timeout_seconds'? allowed: "),
        ("function = 3", "function: input should be a valid string"),
        ("retries = 2", "retries need safe_to_repeat=True"),
        ("when_unknown = 'guess'", "when_unknown: input should be 'ask' or 'fail'"),
    ],
)
def test_options_are_checked(shop: Any, line: Any, said: Any) -> None:
    name, folder = shop
    given = line if line.startswith("function") else f'function = "{name}:price"\n{line}'
    with pytest.raises(SetupError) as raised:
        written(folder, f"[tools.price]\n{given}\n").toolset().make("price")
    assert said in str(raised.value)


def test_the_search_path_keeps_its_order(shop: Any) -> None:
    name, folder = shop
    before = list(sys.path)
    assert callable(imported(f"{name}:price", folder))
    assert sys.path == [*before, str(folder), str(Path.cwd())]
    imported(f"{name}:price", folder)
    assert sys.path == [*before, str(folder), str(Path.cwd())]


def test_a_file_that_came_along_imports_nothing_until_it_is_trusted(
    shop: Any, monkeypatch: Any
) -> None:
    name, folder = shop
    monkeypatch.chdir(folder)
    (folder / "caesura.toml").write_text(f'[tools.price]\nfunction = "{name}:price"\n')
    with pytest.raises(SetupError, match=r"imports Python modules, .*`caesura tools trust`"):
        Config.load()
    assert name not in sys.modules


def test_the_commands_show_and_call_functions(shop: Any) -> None:
    name, folder = shop
    written(folder, f'[tools]\nenabled = ["price"]\n[tools.price]\nfunction = "{name}:price"\n')
    config = ["--config", str(folder / "caesura.toml")]
    caesura = [sys.executable, "-m", "caesura", "tools"]
    listed = subprocess.run([*caesura, "list", *config], capture_output=True, text=True)
    assert f"{name}:price" in listed.stdout and "Look up what an item costs." in listed.stdout
    called = [*caesura, "test", "price", '{"item": "chair"}', *config]
    result = subprocess.run(called, capture_output=True, text=True)
    assert "60" in result.stdout, result.stderr
