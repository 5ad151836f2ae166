"""The file of responses and conversations."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.server.plugin import RESPONSES, store_of
from caesura.runtime.server.responses.items import items_of
from caesura.runtime.server.responses.store import (
    SWEEP_EVERY,
    Bounds,
    Conversation,
    NotStored,
    PostgresResponses,
    ResponseStore,
    SqliteResponses,
    Stored,
    StoreUnavailable,
    history_of,
)
from caesura.scheduler.paths import responses_path
from caesura.stores.leases import new_owner


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def stored(name: str, text: str = "hello", **fields: Any) -> Stored:
    resource = {"id": name, "status": "completed", "previous_response_id": None} | fields
    output = items_of([{"role": "assistant", "content": f"re {text}"}])
    return Stored(resource, items_of(text), output, [{"role": "user", "content": text}])


def test_a_response_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "responses.sqlite"
    before = SqliteResponses(path)
    before.put(stored("resp_1", "grüße \U0001f600"))
    before.close()
    found = SqliteResponses(path).get("resp_1", None)
    assert found == stored_like(found, stored("resp_1", "grüße \U0001f600"))
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def stored_like(found: Stored, made: Stored) -> Stored:
    """`made` with the item ids of `found`, which are new each time."""
    return Stored(made.resource, found.input, found.output, made.messages)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> ResponseStore:
    """Each kind of store."""
    if request.param == "sqlite":
        return SqliteResponses(None)
    return PostgresResponses(request.getfixturevalue("database"))


def test_any_text_comes_back_as_it_was(store: ResponseStore) -> None:
    text = "grüße \U0001f600 \x00 \ud800 %s $1 '"
    store.put(stored("resp_1", text))
    found = store.get("resp_1", None)
    assert found == stored_like(found, stored("resp_1", text))


def test_a_later_state_replaces_an_earlier_one(store: ResponseStore) -> None:
    store.put(stored("resp_1", "a", status="in_progress"))
    store.put(stored("resp_1", "b"))
    assert store.get("resp_1", None).resource["status"] == "completed"
    assert len(store.get("resp_1", None).input) == 1


def test_a_chain_is_told_from_its_begin(store: ResponseStore) -> None:
    store.put(stored("resp_1", "a"))
    store.put(stored("resp_2", "b", previous_response_id="resp_1"))
    assert [m["content"] for m in history_of(store.chain("resp_2", None))] == ["a", "b"]
    store.delete("resp_1", None)
    with pytest.raises(NotStored) as missing:
        store.chain("resp_2", None)
    assert missing.value.missing == "resp_1"


def test_the_rest_of_a_run_replaces_its_first_part(store: ResponseStore) -> None:
    first, rest = stored("resp_1", "a"), stored("resp_2", "b", previous_response_id="resp_1")
    rest = Stored(rest.resource, rest.input, rest.output, rest.messages, covers_previous=True)
    assert [m["content"] for m in history_of([first, rest])] == ["b"]
    store.put(rest)
    assert store.get("resp_2", None).covers_previous


def test_a_deleted_response_is_gone_with_its_items(store: ResponseStore) -> None:
    store.put(stored("resp_1"))
    item = store.get("resp_1", None).input[0]
    assert store.item(item["id"], None) == item
    store.delete("resp_1", None)
    for work, key in ((store.get, "resp_1"), (store.delete, "resp_1"), (store.item, item["id"])):
        with pytest.raises(NotStored):
            work(key, None)


def test_what_was_used_least_recently_makes_room() -> None:
    store = SqliteResponses(None, Bounds(max_records=4), Clock())
    for number in range(4):
        store.put(stored(f"resp_{number}"))
    store.chain("resp_0", None)
    for number in range(4, SWEEP_EVERY + 1):
        store.put(stored(f"resp_{number}", previous_response_id=None))
        store.chain("resp_0", None)
    assert store.get("resp_0", None)
    with pytest.raises(NotStored):
        store.get("resp_1", None)


@pytest.mark.parametrize("bounds", [Bounds(max_bytes=2000), Bounds(max_age_seconds=3.0)])
def test_size_and_age_are_bounded(bounds: Bounds) -> None:
    store = SqliteResponses(None, bounds, Clock())
    for number in range(SWEEP_EVERY + 1):
        store.put(stored(f"resp_{number}"))
    with pytest.raises(NotStored):
        store.get("resp_0", None)
    assert store.get(f"resp_{SWEEP_EVERY}", None)


def test_what_a_killed_process_left_unfinished_has_failed(tmp_path: Path) -> None:
    path = tmp_path / "responses.sqlite"
    store = SqliteResponses(path)
    store.put(stored("resp_1", status="in_progress"))
    store.put(stored("resp_2", status="in_progress"))
    store.close()
    with sqlite3.connect(path) as db:  # as if another process had written it, and was killed
        db.execute("UPDATE records SET owner = ? WHERE id = 'resp_1'", (f"{os.getpid()}-0-1",))
    again = SqliteResponses(path)
    assert again.get("resp_1", None).resource["status"] == "failed"
    assert again.get("resp_1", None).resource["error"]["code"] == "server_error"
    assert again.get("resp_2", None).resource["status"] == "in_progress"


def test_a_conversation_collects_items(store: ResponseStore) -> None:
    store.put_conversation(Conversation("conv_1", 7, {"a": "b"}), items_of("first"))
    store.put(stored("resp_1", "second", conversation={"id": "conv_1"}))
    store.put(stored("resp_2", "never", conversation={"id": "conv_1"}, status="failed"))
    items = store.conversation_items("conv_1", None)
    assert [item["content"][0]["text"] for item in items] == ["first", "second", "re second"]
    store.delete_item("conv_1", items[0]["id"], None)
    store.add_items("conv_1", items_of("third"), None)
    texts = [item["content"][0]["text"] for item in store.conversation_items("conv_1", None)]
    assert texts == ["second", "re second", "third"]
    assert store.conversation("conv_1", None) == Conversation("conv_1", 7, {"a": "b"})
    store.put_conversation(Conversation("conv_1", 7, {"c": "d"}))
    assert store.conversation("conv_1", None).metadata == {"c": "d"}
    assert len(store.conversation_items("conv_1", None)) == 3
    store.delete_conversation("conv_1", None)
    with pytest.raises(NotStored):
        store.conversation_items("conv_1", None)
    assert store.get("resp_1", None)


def test_what_belongs_to_another_tenant_is_not_there(store: ResponseStore) -> None:
    ann = replace(stored("resp_1"), tenant="ann")
    store.put(ann)
    store.put(replace(stored("resp_2", previous_response_id="resp_1"), tenant="bob"))
    store.put(stored("resp_3"))
    store.put_conversation(Conversation("conv_1", 7, {}, "ann"), items_of("first"))
    item = store.conversation_items("conv_1", "ann")[0]
    assert store.get("resp_1", "ann").tenant == "ann"
    assert store.item(item["id"], "ann") == store.item(item["id"], None) == item
    hidden: list[tuple[Any, ...]] = [
        (store.get, "resp_1", "bob"),
        (store.get, "resp_3", "bob"),
        (store.chain, "resp_1", "bob"),
        (store.chain, "resp_2", "bob"),
        (store.delete, "resp_1", "bob"),
        (store.item, ann.input[0]["id"], "bob"),
        (store.item, item["id"], "bob"),
        (store.conversation, "conv_1", "bob"),
        (store.conversation_items, "conv_1", "bob"),
        (store.add_items, "conv_1", items_of("second"), "bob"),
        (store.delete_item, "conv_1", item["id"], "bob"),
        (store.delete_conversation, "conv_1", "bob"),
    ]
    for work, *values in hidden:
        with pytest.raises(NotStored):
            work(*values)
    assert len(store.chain("resp_2", None)) == 2
    store.put_conversation(Conversation("conv_1", 7, {"a": "b"}, "bob"))
    assert store.conversation("conv_1", "ann").tenant == "ann", "it stays with its tenant"
    assert len(store.conversation_items("conv_1", "ann")) == 1


VERSION_1 = """
CREATE TABLE records (id TEXT PRIMARY KEY, kind TEXT, previous TEXT, status TEXT,
  owner TEXT, used REAL, bytes INTEGER, body TEXT, messages TEXT);
CREATE TABLE items (record TEXT, part TEXT, position INTEGER, id TEXT, body TEXT,
  PRIMARY KEY (record, part, position)) WITHOUT ROWID;
INSERT INTO records VALUES ('resp_old', 'response', NULL, 'completed', '', 0, 2,
  '{"id": "resp_old", "status": "completed"}', '[false, []]');
PRAGMA user_version = 1;
"""


def test_a_file_of_the_version_before_is_brought_on(tmp_path: Path) -> None:
    path = tmp_path / "responses.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript(VERSION_1)
    with ThreadPoolExecutor(4) as threads:  # servers that start together
        found = list(threads.map(lambda _: SqliteResponses(path).get("resp_old", None), range(8)))
    assert {each.tenant for each in found} == {""}
    store = SqliteResponses(path)
    store.put(replace(stored("resp_1"), tenant="ann"))
    assert store.get("resp_1", "ann").id == "resp_1"
    with pytest.raises(NotStored):
        store.get("resp_old", "ann")


def test_a_database_of_the_version_before_is_brought_on(database: str) -> None:
    import psycopg

    PostgresResponses(database).put(stored("resp_old"))
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("ALTER TABLE caesura.records DROP COLUMN tenant")
    store = PostgresResponses(database)
    assert store.get("resp_old", None).tenant == ""
    store.put(replace(stored("resp_1"), tenant="ann"))
    assert store.get("resp_1", "ann").id == "resp_1"
    with pytest.raises(NotStored):
        store.get("resp_old", "ann")
    with psycopg.connect(database, autocommit=True) as db:  # as a server of before writes it
        values = "'resp_2', 'response', NULL, 'completed', '', now(), 2, %s, '[false, []]'"
        body = '{"id": "resp_2", "status": "completed"}'
        db.execute(f"INSERT INTO caesura.records VALUES ({values})", (body,))
    assert store.get("resp_2", None).tenant == ""


def test_the_plugin_of_vllm_serve_takes_its_file_from_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "responses.sqlite"
    assert store_of({RESPONSES: str(path)}).path == path
    assert store_of({RESPONSES: "off"}).path is None
    assert store_of({}).path == responses_path()


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE other (id)")
    with pytest.raises(UsageError, match="choose another file"):
        SqliteResponses(path).get("resp_1", None)


@pytest.mark.parametrize("bounds", [Bounds(max_bytes=2000), Bounds(max_age_seconds=0.0)])
def test_a_database_is_bounded(database: str, bounds: Bounds) -> None:
    store = PostgresResponses(database, bounds)
    store.put(stored("resp_going", status="in_progress"))
    for number in range(SWEEP_EVERY):
        store.put(stored(f"resp_{number}"))
    with pytest.raises(NotStored):
        store.get("resp_0", None)
    assert store.get("resp_going", None)


def test_a_final_state_stays(database: str) -> None:
    """A run that another server goes on with ends its earlier responses again."""
    store = PostgresResponses(database)
    store.put(stored("resp_1", "a"))
    store.put(stored("resp_1", "b", status="failed"))
    assert store.get("resp_1", None).resource["status"] == "completed"


def test_servers_share_a_database(database: str) -> None:
    here, there = PostgresResponses(database), PostgresResponses(database)
    here.put_conversation(Conversation("conv_1", 7, {}))
    with ThreadPoolExecutor(2) as threads:
        for store in (here, there):
            threads.map(store.add_items, ["conv_1"] * 20, [items_of("x")] * 20, [None] * 20)
    assert len(here.conversation_items("conv_1", None)) == 40


def test_in_a_database_only_what_a_dead_process_left_unfinished_has_failed(database: str) -> None:
    import psycopg

    store = PostgresResponses(database)
    for name in ("resp_alive", "resp_killed", "resp_elsewhere"):
        store.put(stored(name, status="in_progress"))
    here = new_owner().partition("@")[2]
    owners = {"resp_killed": f"{os.getpid()}-0-1@{here}", "resp_elsewhere": "1-1-1@elsewhere"}
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("INSERT INTO caesura.leases VALUES ('1-1-1@elsewhere', now() + '1 h')")
        for name, owner in owners.items():
            db.execute("UPDATE caesura.records SET owner = %s WHERE id = %s", (owner, name))
    again = PostgresResponses(database)
    status = {name: again.get(name, None).resource["status"] for name in ("resp_alive", *owners)}
    assert status == {
        "resp_alive": "in_progress",
        "resp_killed": "failed",
        "resp_elsewhere": "in_progress",
    }


def test_a_database_that_is_not_there_is_unavailable() -> None:
    store = PostgresResponses("postgresql://me:secret@127.0.0.1:1/nowhere")
    with pytest.raises(StoreUnavailable, match="cannot be used") as caught:
        store.get("resp_1", None)
    assert "secret" not in str(caught.value)
