"""Models with recurrent state: no token is applied twice to the state of a request that pauses.

The step in flight when a call ends has already applied the call's last token, and so have accepted
drafts behind it. Attention would write the same KV to the same place again. A state would differ.
"""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs

from caesura.scheduler.vllm.engine.port.blocks import has_recurrent_state
from tests.scheduler.clients import clients_come_and_go
from tests.scheduler.stateful import StatefulWorld

from .invariants import check_all, check_rest, said_as_planned
from .steering import CALL, IN_EVERY_MODE, WITH_PIPELINES, evict, until_paused
from .world import World, make_scheduler

CACHED = pytest.mark.parametrize("recurrent", ["none", "align"])
"""Without prefix caching a request has one state. With it, states are kept at blocks' ends."""


def converse(world: World) -> None:
    """Let six sessions pause twice each, side by side, at all places of a block."""
    for number in range(6):
        prompt = [40 + (number * 7 + place) % 60 for place in range(30 + 3 * number)]
        texts = ("x" * number + CALL, " 3 and", "y [calc(2+2) ->", " 4 so", "done.")
        world.session(f"s{number}", prompt, *texts)
    for _ in range(400):
        world.step()
        check_all(world)
        for session in world.sessions.values():
            if session.paused and not session.finished:
                world.answer(session)
        if all(session.finished for session in world.sessions.values()):
            break
    world.run()
    said_as_planned(world)
    check_rest(world)


def resumes(world: World) -> list[dict[str, Any]]:
    reports = [report for one in world.sessions.values() for report in one.reports]
    return [report["resume"] for report in reports if report.get("resume")]


@CACHED
@WITH_PIPELINES
def test_a_state_is_of_the_tokens_before(asynchronous: bool, depth: int, recurrent: str) -> None:
    """Without steps ahead of their tokens KV is kept: a pipeline has other requests in flight."""
    options = {"asynchronous": asynchronous, "stages": 1 if asynchronous else depth + 1}
    world = StatefulWorld(depth, recurrent, handling="preserve", **options)
    converse(world)
    found = resumes(world)
    assert len(found) == 12
    if not asynchronous:
        assert all(one["handling"] == "preserve" for one in found)
        assert all(one["cached_tokens"] == one["context_tokens"] for one in found)
    else:
        assert all(one["handling"] == "discard" for one in found)
        at_blocks = [one["cached_tokens"] % world.block_size == 0 for one in found]
        assert all(at_blocks), "only states of the prefix cache are used"
    assert world.read == (0 if asynchronous and recurrent == "none" else 12)


@CACHED
@IN_EVERY_MODE
@pytest.mark.parametrize("text_before", range(4))
def test_accepted_drafts_leave_no_trace(
    asynchronous: bool, depth: int, recurrent: str, text_before: int
) -> None:
    """With drafts even a synchronous engine is behind the call's end when it ends."""
    world = StatefulWorld(
        depth, recurrent, asynchronous=asynchronous, drafts=3, handling="preserve"
    )
    session = world.session("a", range(40), "w" * text_before + CALL, " 3]", " is it")
    until_paused(world, session)
    assert not world.parts.pauses.open["a"].held
    world.answer(session)
    world.run()
    assert world.accepted_drafts
    said_as_planned(world)
    check_rest(world)


@CACHED
@IN_EVERY_MODE
def test_a_chunk_that_came_before_the_end_of_its_turn_finds_no_state(
    asynchronous: bool, depth: int, recurrent: str
) -> None:
    """Such a session does not pause: it goes on in the step after its stop."""
    world = StatefulWorld(depth, recurrent, asynchronous=asynchronous)
    session = world.session("a", range(40), "first", " then", "second", watched=False)
    request = world.scheduler.requests["a"]
    request.sampling_params.stop_token_ids = [*b"t"]
    chunk = world._request("a", [*b"t then"], True, None)
    world.scheduler.add_request(chunk)
    for _ in range(4):
        world.step()
    assert request.streaming_queue
    session.finished = False
    for _ in range(20):
        session.finished = False
        world.step()
    tokens = list(request.all_token_ids)
    expected = [*range(40), *b"first thensecond"]
    assert tokens[: len(expected)] == expected
    world.abort(session)
    world.step()
    world.drain()
    check_rest(world)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_was_discarded_and_evicted_is_computed_again(asynchronous: bool) -> None:
    world = StatefulWorld(int(asynchronous), "align", asynchronous=asynchronous)
    session = world.session("a", range(70), CALL, " 3]", " done")
    until_paused(world, session)
    world.drop_kv("a")
    evict(world)
    world.answer(session)
    world.run()
    said_as_planned(world)
    assert world.computed_again["a"] >= 70


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_step_without_tokens_leaves_no_place_of_a_state_behind(asynchronous: bool) -> None:
    """As when another request ended with the call, and the engine told its runner at once."""
    world = StatefulWorld(int(asynchronous), "align", asynchronous=asynchronous)
    session = world.session("a", range(70), CALL, " 3]", " done")
    until_paused(world, session)
    world.drop_kv("a")
    for _ in range(3):
        assert world.step() == 0
    world.answer(session)
    world.run()
    said_as_planned(world)
    assert 0 < session.reports[-1]["resume"]["cached_tokens"] < 70 + len(CALL)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_prompt_is_not_starved_by_those_that_decode(asynchronous: bool) -> None:
    """Of a limit of 36 tokens, nine that decode leave less than a block of 32."""
    options = {"asynchronous": asynchronous, "block_size": 32, "chunk": 36}
    world = StatefulWorld(int(asynchronous), "align", **options)
    for number in range(9):
        world.session(f"s{number}", range(40), "x" * 90)
    for _ in range(30):
        world.step()
    late = world.session("late", range(50, 250), "y" * 5)
    while not any(session.finished for session in world.sessions.values()):
        world.step()
    assert late.finished, "its prompt waited until the others ended"
    world.run()


@pytest.mark.parametrize("seed", range(6))
@CACHED
@IN_EVERY_MODE
def test_random_clients_with_states(
    asynchronous: bool, depth: int, recurrent: str, seed: int
) -> None:
    """Under preemption, aborts and tiny pools as well."""
    rng = random.Random(seed)
    world = StatefulWorld(
        depth,
        recurrent,
        blocks=rng.choice([34, 60, 200]),
        max_num_seqs=rng.choice([2, 5, 16]),
        max_num_batched_tokens=rng.choice([32, 64, 512]),
        asynchronous=asynchronous,
        drafts=rng.choice([0, 0, 3]),
        handling=rng.choice(["caesura", "preserve", "discard"]),
    )
    clients_come_and_go(world, rng, 120)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"recurrent": "align"}, False),
        ({"recurrent": "align", "asynchronous": True}, True),
        ({"recurrent": "none", "drafts": 2}, True),
        ({"asynchronous": True}, False),
        ({"asynchronous": True, "window": 40}, False),
    ],
)
def test_the_log_says_what_is_discarded(
    options: dict[str, Any], said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = make_scheduler(**options)
    assert scheduler.parts.port.stop_spoils_kv is said
    assert ("recurrent state" in caplog.text) is said


def test_a_state_among_layers_of_one_group_is_found() -> None:
    config = make_scheduler(recurrent="none").kv_cache_config
    attention, states = (group.kv_cache_spec for group in config.kv_cache_groups)
    both = UniformTypeKVCacheSpecs(block_size=16, kv_cache_specs={"a": attention, "s": states})
    for spec, found in ((attention, False), (states, True), (both, True)):
        groups = [SimpleNamespace(kv_cache_spec=spec)]
        assert has_recurrent_state(SimpleNamespace(kv_cache_groups=groups)) is found  # type: ignore[arg-type]
