"""Agents where people put them: in a web service and in a notebook."""

import ast
import importlib.util
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.sdk import engines as shared
from caesura.runtime.testing import ScriptedEngine, call, say

EXAMPLES = Path(__file__).parents[3] / "examples"
PRICES = {"lamp": 24, "chair": 59, "book": 12}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedEngine]:
    """The engines that agents start by name: each looks up a price, and tells it."""
    engines: list[ScriptedEngine] = []

    def script(messages: Any, tools: Any) -> Any:
        last = messages[-1]
        if last["role"] == "tool":
            return say(f"It costs {last['content']} euros.")
        return call("price", item=next(item for item in PRICES if item in last["content"]))

    async def start(model: str | None) -> ScriptedEngine:
        engines.append(ScriptedEngine(script))
        return engines[-1]

    monkeypatch.setattr(shared.ENGINES, "_launch", start)
    return engines


def test_fastapi_shares_one_engine_among_routes_threads_and_streams(
    started: list[ScriptedEngine],
) -> None:
    testclient = pytest.importorskip("fastapi.testclient")
    spec = importlib.util.spec_from_file_location("fastapi_example", EXAMPLES / "15_fastapi.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with testclient.TestClient(module.app) as client:
        assert len(started) == 1  # before the first request
        for route in ("/price", "/price-by-thread"):
            for item, price in PRICES.items():
                said = client.get(route, params={"of": item}).json()
                assert said == {"answer": f"It costs {price} euros."}
        text = client.get("/stream", params={"of": "lamp"}).text
        assert text == "[price: 24]\nIt costs 24 euros."
        assert started[0].open_sessions == 0
    assert [engine.closed for engine in started] == [True]


async def test_the_notebook_runs_cell_by_cell(
    started: list[ScriptedEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    cells = json.loads((EXAMPLES / "16_notebook.ipynb").read_text())["cells"]
    scope: dict[str, Any] = {"__name__": "__main__"}
    shown = {
        each["id"]: await ran("".join(each["source"]), scope)
        for each in cells
        if each["cell_type"] == "code"
    }
    assert shown["run"].text == "It costs 24 euros."
    assert shown["stream"].turns == 4
    assert "[price: 59]\nIt costs 59 euros.\n" in capsys.readouterr().out
    assert shown["thread"] == [f"It costs {price} euros." for price in PRICES.values()]
    assert [engine.closed for engine in started] == [True]


async def ran(source: str, scope: dict[str, Any]) -> Any:
    """Run a cell as a notebook's kernel does; return the value of its last line, if it has one."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    await executed(ast.Module(body, []), scope)
    if not isinstance(last, ast.Expr):
        return None
    shown = ast.Assign([ast.Name("_", ast.Store())], last.value)
    await executed(ast.fix_missing_locations(ast.Module([shown], [])), scope)
    return scope["_"]


async def executed(tree: ast.Module, scope: dict[str, Any]) -> None:
    code = compile(tree, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, scope)
    else:
        exec(code, scope)
