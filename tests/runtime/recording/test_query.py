"""`caesura trace query`: what SQL finds in a file of recordings, and that it can only read."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.entries import Entry, row_of
from caesura.runtime.recording.query import query, schema
from caesura.runtime.recording.storage import Store
from tests.runtime.cli.traces import stored, trace

ROOT = Path(__file__).parents[3]
EXAMPLES = re.findall(
    r'^caesura trace query "(.*)"$', (ROOT / "docs/guides/tracing.md").read_text(), re.MULTILINE
)


def span(number: str, name: str, end: float | None, **attributes: Any) -> Entry:
    named = {f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()}
    if error := named.pop("gen_ai.error", None):
        named["error.type"] = error
    operation = {"gen_ai.operation.name": name.partition(" ")[0]}
    return {
        "kind": "span",
        "trace": "t",
        "span": number,
        "parent": None,
        "name": name,
        "start": 10.0,
        "end": end,
        "attributes": operation | named,
    }


def chat(number: str, model: str, tokens: int, cached: int) -> Entry:
    usage = {"usage__input_tokens": tokens, "usage__cache_read__input_tokens": cached}
    return span(number, f"chat {model}", 12.0, request__model=model, **usage)


def pause(tool: str, cost: float | None, recomputed: int) -> Entry:
    return {
        "kind": "pause",
        "request": "r",
        "at": 11.0,
        "tool": tool,
        "cost": cost,
        "recomputed_tokens": recomputed,
    }


ASKED = {
    "kind": "span",
    "trace": "asked",
    "name": "invoke_agent",
    "start": 10.0,
    "end": 12.0,
    "attributes": {
        "gen_ai.operation.name": "invoke_agent",
        "caesura.tenant": "ann",
        "session.id": "helper",
        "caesura.session.parent": "main",
        "caesura.x_request_id": "mine-7",
    },
}
ENTRIES = [
    span("1", "execute_tool search", None, tool__name="search"),
    span("1", "execute_tool search", 13.5, tool__name="search", error="timeout"),
    span("2", "execute_tool search", 13.0, tool__name="search", error="timeout"),
    span("3", "execute_tool price", 11.0, tool__name="price", error="failed"),
    span("4", "execute_tool price", 11.0, tool__name="price"),
    chat("5", "big", 100, 40),
    chat("6", "big", 300, 260),
    chat("7", "small", 50, 0),
    pause("search", 2.5, 100),
    pause("search", 4.0, 20),
    pause("price", 7.5, 0),
    pause("price", None, 0),
    ASKED | {"span": "8", "parent": None},
    chat("9", "big", 200, 150) | {"trace": "asked", "parent": "8"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return stored(tmp_path, ENTRIES, ended=20.0)


def test_the_documented_examples_find_what_they_say(file: Path) -> None:
    costs, failures, cached, asked = (query(file, text) for text in EXAMPLES)
    assert costs.columns == ("tool", "pauses", "cost", "recomputed")
    assert costs.rows == [("price", 2, 7.5, 0), ("search", 2, 6.5, 120)]
    assert failures.columns == ("tool", "error", "times")
    assert failures.rows == [("search", "timeout", 2), ("price", "failed", 1)]
    assert cached.columns == ("model", "input", "cached_percent")
    assert cached.rows == [("big", 600, 75.0), ("small", 50, 0.0)]
    assert asked.columns == ("tenant", "user", "input", "cached", "output")
    assert asked.rows == [("ann", None, 200, 150, None)]


def test_who_asked_is_in_columns(file: Path) -> None:
    columns = "tenant, session, parent_session, request_id"
    found = query(file, f"SELECT {columns} FROM spans WHERE tenant IS NOT NULL")
    assert found.rows == [("ann", "helper", "main", "mine-7")]


def test_a_span_counts_once_as_it_ended(file: Path) -> None:
    found = query(file, "SELECT span, seconds FROM spans WHERE tool = 'search' ORDER BY span")
    assert found.rows == [("1", 3.5), ("2", 3.0)]


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM entries",
        "UPDATE recordings SET title = ''",
        "CREATE TABLE mine (x)",
        "DROP VIEW spans",
        "PRAGMA query_only = OFF",
        "ATTACH DATABASE 'made.sqlite' AS made",
        "INSERT INTO entries (kind) VALUES ('span')",
        "VACUUM INTO 'made.sqlite'",
        "BEGIN",
    ],
)
def test_it_can_only_read(
    file: Path, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = file.read_bytes()
    with pytest.raises(UsageError, match="can only read"):
        query(file, text)
    assert file.read_bytes() == before
    assert not (tmp_path / "made.sqlite").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT nobody FROM spans", "no such column: nobody: `caesura trace query` without"),
        ("SELECT * FROM calls", "no such table: calls: `caesura trace query` without a query"),
        ("SELEC 1", "syntax error, in the query 'SELEC 1'"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("", "must be one SELECT, got ''"),
        ("-- nothing", "must be one SELECT"),
    ],
)
def test_a_wrong_query_is_told(file: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        query(file, text)


def test_the_command_prints_a_table_or_json(file: Path, tmp_path: Path) -> None:
    told = trace("query", EXAMPLES[0], "--store", file).stdout.splitlines()
    assert told[0].split() == ["tool", "pauses", "cost", "recomputed"]
    assert told[1].split() == ["price", "2", "7.5", "0"]
    found = json.loads(trace("query", EXAMPLES[2], "--store", file, "--json").stdout)
    assert found[0] == {"model": "big", "input": 600, "cached_percent": 75.0}
    listed = trace("query", "--store", file).stdout
    assert all(name in listed for name in schema(file))
    assert "cached_tokens" in listed and "recomputed_tokens" in listed
    assert "no such column" in trace("query", "SELECT x", "--store", file, code=1).stderr
    trace("query", "SELECT 1", "--store", tmp_path / "none.sqlite", code=1)


def test_there_are_four_documented_examples() -> None:
    assert len(EXAMPLES) == 4
    assert all(shlex.split(f'"{text}"') == [text] for text in EXAMPLES)


def test_the_documented_query_of_several_servers_tells_them_apart(tmp_path: Path) -> None:
    (example,) = re.findall(
        r'^caesura trace query "(.*)"$',
        (ROOT / "docs/guides/many-servers.md").read_text(),
        re.MULTILINE,
    )
    file = tmp_path / "traces.sqlite"
    store = Store(file)
    for server, statuses in (("a", (503, 200)), ("b", (500, 503, 503))):
        made = store.begin("t", "serve", {"server": server})
        store.append(
            made,
            [
                row_of({"kind": "http", "at": 1.0, "status": status, "count": 2})
                for status in statuses
            ],
        )
    store.close()
    found = query(file, example)
    assert found.columns == ("server", "failed")
    assert found.rows == [("a", 2), ("b", 6)]
