"""Why somebody waited: what it lacked when it was looked at, and who went before it."""

from types import SimpleNamespace
from typing import Any

from caesura.scheduler.vllm.engine.export.request_states import QueueDelays
from caesura.scheduler.vllm.engine.sessions.recorder import Lack

from .steering import faulty_world, finishes
from .world import World


def waits(world: World) -> dict[str, dict[str, Any]]:
    """Run to the end; return the waits by request."""
    finishes(world)
    while world.scheduler.has_requests():
        world.step()
        world.drain()
    found = [record for record in world.records if record["kind"] == "wait"]
    assert len({record["request"] for record in found}) == len(found)
    return {record["request"]: record for record in found}


def test_nobody_waits_where_there_is_room() -> None:
    world = faulty_world()
    for name, start in (("a", 0), ("b", 1000)):
        world.session(name, range(start, start + 50), "y" * 20)
    assert waits(world) == {}


def test_there_are_no_slots() -> None:
    """Those who are too far back to be looked at lack them as well."""
    world = faulty_world(max_num_seqs=1)
    for name in "abcd":
        world.session(name, range(ord(name) * 100, ord(name) * 100 + 20), "y" * 10)
    found = waits(world)
    assert set(found) == set("bcd")
    assert all(one["lacked"] == {"slots": one["steps"]} for one in found.values())
    assert found["b"]["steps"] < found["c"]["steps"] < found["d"]["steps"]
    assert all(one["after"] == "fresh" and not one["overtaken"] for one in found.values())


def test_there_are_no_tokens() -> None:
    world = faulty_world(max_num_batched_tokens=16, ranking="fcfs")
    world.session("a", range(200), "y")
    world.session("b", range(1000, 1020), "y")
    found = waits(world)
    assert set(found) == {"b"}
    assert found["b"]["lacked"] == {"tokens": found["b"]["steps"]}


def test_there_are_no_blocks_and_a_smaller_one_goes_before() -> None:
    world = faulty_world(blocks=20, ranking="fcfs")
    world.session("a", range(200), "y" * 30)
    world.step()
    world.session("b", range(1000, 1200), "y")
    world.step()
    world.session("c", range(2000, 2020), "y")
    found = waits(world)
    assert set(found) == {"b"}
    assert found["b"]["lacked"] == {"blocks": found["b"]["steps"]}
    assert found["b"]["needed_blocks"] >= 13 > found["b"]["free_blocks"]
    assert found["b"]["overtaken"] == 1


def test_admission_refuses() -> None:
    world = faulty_world(admission="conservative")
    for name in "abc":
        world.plain(name, range(ord(name) * 1000, ord(name) * 1000 + 20), "y" * 40, 250)
    found = waits(world)
    assert set(found) == {"c"} or set(found) == {"b", "c"}
    assert all(set(one["lacked"]) == {"admission"} for one in found.values())
    # It was refused beside the others, as long as as many of them ran.
    assert all(1 <= one["admitted_most"] <= 2 for one in found.values())


def test_nobody_may_go_before_somebody() -> None:
    """Without back-filling whoever is behind a misfit is not looked at."""
    world = faulty_world(blocks=20, ranking="fcfs", backfill=False)
    world.session("a", range(200), "y" * 30)
    world.step()
    world.session("b", range(1000, 1200), "y")
    world.session("c", range(2000, 2020), "y")
    found = waits(world)
    assert found["b"]["lacked"] == {"blocks": found["b"]["steps"]}
    assert found["c"]["lacked"] == {"line": found["c"]["steps"]}
    assert not found["b"]["overtaken"]
    assert found["c"]["behind"] == "b"
    assert found["b"]["behind"] is None and found["b"]["admitted_most"] is None


def test_it_stood_behind_the_last_one_that_was_not_overtaken() -> None:
    """One that was itself examined in a step stood behind nobody in it."""
    delays, session = QueueDelays(), SimpleNamespace(overtaken=0)
    for name in "abc":
        delays.begin(name, "fresh", 0.0, session)  # type: ignore[arg-type]
    for front, examined in (("a", ["a"]), ("a", ["a"]), ("b", ["b"]), ("c", ["b", "c"])):
        delays.looked([Lack(one, "blocks", 2, 1) for one in examined], "line", front)
        delays.settle()
    found = {name: delays.end(name, 9.0) for name in "abc"}
    assert {name: wait and wait.behind for name, wait in found.items()} == {
        "a": "c",
        "b": "a",
        "c": "b",
    }


def test_a_wait_that_is_broken_off_is_told() -> None:
    world = faulty_world(max_num_seqs=1)
    world.session("a", range(20), "y" * 30)
    waiting = world.session("b", range(1000, 1020), "y")
    for _ in range(10):
        world.step()
    world.abort(waiting)
    found = waits(world)
    assert found["b"]["steps"] == 10
    assert found["b"]["lacked"] == {"slots": 10}
