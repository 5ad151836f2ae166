"""The file of responses and conversations."""

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.plugin import RESPONSES, store_of
from caesura.runtime.server.responses.items.given import items_of
from caesura.runtime.server.responses.store import (
    Bounds,
    Conversation,
    NotStored,
    Store,
    Stored,
    history_of,
)
from caesura.runtime.server.responses.store.store import SWEEP_EVERY
from caesura.scheduler.paths import responses_path


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
    before = Store(path)
    before.put(stored("resp_1", "grüße \U0001f600"))
    before.close()
    found = Store(path).get("resp_1")
    assert found == stored_like(found, stored("resp_1", "grüße \U0001f600"))
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def stored_like(found: Stored, made: Stored) -> Stored:
    """`made` with the item ids of `found`, which are new each time."""
    return Stored(made.resource, found.input, found.output, made.messages)


def test_a_later_state_replaces_an_earlier_one() -> None:
    store = Store(None)
    store.put(stored("resp_1", "a", status="in_progress"))
    store.put(stored("resp_1", "b"))
    assert store.get("resp_1").resource["status"] == "completed"
    assert len(store.get("resp_1").input) == 1


def test_a_chain_is_told_from_its_begin() -> None:
    store = Store(None)
    store.put(stored("resp_1", "a"))
    store.put(stored("resp_2", "b", previous_response_id="resp_1"))
    assert [m["content"] for m in history_of(store.chain("resp_2"))] == ["a", "b"]
    store.delete("resp_1")
    with pytest.raises(NotStored) as missing:
        store.chain("resp_2")
    assert missing.value.missing == "resp_1"


def test_the_rest_of_a_run_replaces_its_first_part() -> None:
    first, rest = stored("resp_1", "a"), stored("resp_2", "b", previous_response_id="resp_1")
    rest = Stored(rest.resource, rest.input, rest.output, rest.messages, covers_previous=True)
    assert [m["content"] for m in history_of([first, rest])] == ["b"]
    store = Store(None)
    store.put(rest)
    assert store.get("resp_2").covers_previous


def test_a_deleted_response_is_gone_with_its_items() -> None:
    store = Store(None)
    store.put(stored("resp_1"))
    item = store.get("resp_1").input[0]
    assert store.item(item["id"]) == item
    store.delete("resp_1")
    for work, key in ((store.get, "resp_1"), (store.delete, "resp_1"), (store.item, item["id"])):
        with pytest.raises(NotStored):
            work(key)


def test_what_was_used_least_recently_makes_room() -> None:
    store = Store(None, Bounds(max_records=4), Clock())
    for number in range(4):
        store.put(stored(f"resp_{number}"))
    store.chain("resp_0")
    for number in range(4, SWEEP_EVERY + 1):
        store.put(stored(f"resp_{number}", previous_response_id=None))
        store.chain("resp_0")
    assert store.get("resp_0")
    with pytest.raises(NotStored):
        store.get("resp_1")


@pytest.mark.parametrize("bounds", [Bounds(max_bytes=2000), Bounds(max_age_seconds=3.0)])
def test_size_and_age_are_bounded(bounds: Bounds) -> None:
    store = Store(None, bounds, Clock())
    for number in range(SWEEP_EVERY + 1):
        store.put(stored(f"resp_{number}"))
    with pytest.raises(NotStored):
        store.get("resp_0")
    assert store.get(f"resp_{SWEEP_EVERY}")


def test_what_a_killed_process_left_unfinished_has_failed(tmp_path: Path) -> None:
    path = tmp_path / "responses.sqlite"
    store = Store(path)
    store.put(stored("resp_1", status="in_progress"))
    store.put(stored("resp_2", status="in_progress"))
    store.close()
    with sqlite3.connect(path) as db:  # as if another process had written it, and was killed
        db.execute("UPDATE records SET owner = ? WHERE id = 'resp_1'", (f"{os.getpid()}-0-1",))
    again = Store(path)
    assert again.get("resp_1").resource["status"] == "failed"
    assert again.get("resp_1").resource["error"]["code"] == "server_error"
    assert again.get("resp_2").resource["status"] == "in_progress"


def test_a_conversation_collects_items() -> None:
    store = Store(None)
    store.put_conversation(Conversation("conv_1", 7, {"a": "b"}), items_of("first"))
    store.put(stored("resp_1", "second", conversation={"id": "conv_1"}))
    store.put(stored("resp_2", "never", conversation={"id": "conv_1"}, status="failed"))
    items = store.conversation_items("conv_1")
    assert [item["content"][0]["text"] for item in items] == ["first", "second", "re second"]
    store.delete_item("conv_1", items[0]["id"])
    store.add_items("conv_1", items_of("third"))
    texts = [item["content"][0]["text"] for item in store.conversation_items("conv_1")]
    assert texts == ["second", "re second", "third"]
    assert store.conversation("conv_1") == Conversation("conv_1", 7, {"a": "b"})
    store.put_conversation(Conversation("conv_1", 7, {"c": "d"}))
    assert store.conversation("conv_1").metadata == {"c": "d"}
    assert len(store.conversation_items("conv_1")) == 3
    store.delete_conversation("conv_1")
    with pytest.raises(NotStored):
        store.conversation_items("conv_1")
    assert store.get("resp_1")


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
        Store(path).get("resp_1")
