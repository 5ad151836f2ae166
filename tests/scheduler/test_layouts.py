"""Pauses on every layout of a KV cache: windows, chunks, MLA, recurrent states, and all together.

The fake runner's layers check at each step that what they read is what was written for just these
tokens (`layouts.py`).
"""

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.scheduler.clients import clients_come_and_go, converse, resumes

from .invariants import check_all, check_rest, said_as_planned
from .layouts import LAYOUTS, Attention, Memory, Recurrent, groups_of, is_recurrent, room
from .steering import CALL, evict, until_paused
from .world import Session, World, make_scheduler

CACHED = pytest.mark.parametrize("cached", [True, False], ids=["cached", "uncached"])
AHEAD = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
EVERY = pytest.mark.parametrize("layout", LAYOUTS[1:])


def make_world(
    layout: str, cached: bool, asynchronous: bool, blocks: int = 40, **options: Any
) -> World:
    """Return a world in which one group of full attention would have so many blocks."""
    scheduler = make_scheduler(
        layout=layout,
        prefix_caching=cached,
        asynchronous=asynchronous,
        blocks=room(layout, blocks, cached, options.get("drafts", 0), int(asynchronous)),
        **options,
    )
    return World(scheduler, int(asynchronous))


@EVERY
@CACHED
@AHEAD
def test_kept_kv_is_used_again(layout: str, cached: bool, asynchronous: bool) -> None:
    world = make_world(layout, cached, asynchronous, blocks=100, handling="preserve")
    converse(world)
    found = resumes(world)
    assert len(found) == 12
    assert all(one["handling"] == "preserve" for one in found)
    assert all(one["cached_tokens"] == one["context_tokens"] for one in found)
    again = sum(world.computed_again.values())
    # Without recurrent state a step in flight computes the last token of a call for nothing.
    assert again == (12 if asynchronous and not is_recurrent(layout) else 0)


@EVERY
@CACHED
@AHEAD
@pytest.mark.parametrize("evicted", [False, True])
def test_dropped_kv_is_computed_again(
    layout: str, cached: bool, asynchronous: bool, evicted: bool
) -> None:
    world = make_world(layout, cached, asynchronous, blocks=100)
    session = world.session("a", range(130), CALL, "r" * 30 + "]", "y" * 20 + CALL, " 3]", " done")
    for _ in range(2):
        until_paused(world, session)
        world.drop_kv("a")
        if evicted:
            evict(world)
        world.answer(session)
    world.run()
    said_as_planned(world)
    check_rest(world)
    found = [one["cached_tokens"] for one in resumes(world)]
    assert all(found) if cached and not evicted else not any(found)


@EVERY
@CACHED
@AHEAD
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 16))]
)
def test_random_clients(layout: str, cached: bool, asynchronous: bool, seed: int) -> None:
    """Under preemption, aborts and tiny pools, with drafts and without."""
    rng = random.Random(seed)
    world = make_world(
        layout,
        cached,
        asynchronous,
        blocks=rng.choice([34, 60, 200]),
        window=rng.choice([16, 40, 100]),
        max_num_seqs=rng.choice([2, 5, 16]),
        max_num_batched_tokens=rng.choice([32, 64, 512]),
        drafts=rng.choice([0, 0, 3]),
        handling=rng.choice(["caesura", "preserve", "discard"]),
    )
    world.scheduler.use_v2_model_runner = asynchronous and rng.random() < 0.5
    clients_come_and_go(world, rng, 100)


@EVERY
@CACHED
@AHEAD
def test_running_requests_take_paused_kv_and_are_not_preempted(
    layout: str, cached: bool, asynchronous: bool
) -> None:
    """What a step needs is predicted for each group, so that enough is taken in time."""
    world = make_world(layout, cached, asynchronous, blocks=34, handling="preserve")
    paused = [
        world.session(f"s{n}", range(n * 500, n * 500 + 90), CALL, " 3]", "ok") for n in range(3)
    ]
    until_paused(world, *paused)
    preempted: list[str] = []
    preempt = world.scheduler._preempt_request

    def noted(request: Any, *args: Any, **kwargs: Any) -> None:
        preempted.append(request.request_id)
        preempt(request, *args, **kwargs)

    world.scheduler._preempt_request = noted
    hungry = world.plain("hungry", range(9000, 9100), "y" * 380)
    while not hungry.finished:
        world.step()
        check_all(world)
    assert not preempted
    for session in paused:
        world.answer(session)
    world.run()
    said_as_planned(world)
    check_rest(world)


@EVERY
@CACHED
@AHEAD
def test_a_newcomer_is_admitted_in_place_of_paused_kv(
    layout: str, cached: bool, asynchronous: bool
) -> None:
    """While another request runs, so that nothing else would make room."""
    world = make_world(layout, cached, asynchronous, blocks=34, handling="preserve")
    world.plain("runs", range(9000, 9016), "y" * 300)
    paused: list[Session] = []
    while len(paused) < 9 and world.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() > 6:
        start = 500 * len(paused)
        paused.append(world.session(f"s{start}", range(start, start + 30), CALL, " 3]", "ok"))
        until_paused(world, *paused)
    newcomer = world.plain("new", range(7000, 7200), "z" * 5)
    for _ in range(12):
        world.step()
        check_all(world)
    assert newcomer.finished
    for session in paused:
        world.answer(session)
    world.run()
    said_as_planned(world)
    check_rest(world)


def test_a_window_is_admitted_without_room_for_its_whole_prompt() -> None:
    """It gives blocks up on the way, so paused KV stays."""
    world = World(make_scheduler(layout="window", window=16, blocks=24, max_num_batched_tokens=32))
    paused = [world.session(f"s{n}", range(n * 500, n * 500 + 30), CALL, "", "") for n in range(4)]
    until_paused(world, *paused)
    newcomer = world.plain("new", range(7000, 7400), "z" * 5)
    while not newcomer.finished:
        world.step()
        check_all(world)
    assert all(one.pause.held for one in world.parts.served.paused.values())


def test_a_state_cached_in_the_last_step_is_taken_as_such() -> None:
    """vLLM refuses a state that is cached in the same step, as if it lacked all blocks."""
    world = make_world("state+full", True, False, blocks=60, handling="preserve")
    pool = world.scheduler.kv_cache_manager.block_pool
    paused: list[Session] = []
    while pool.get_num_free_blocks() > 20:
        start = 500 * len(paused)
        paused.append(world.session(f"s{start}", range(start, start + 30), CALL, " 3]", "ok"))
        until_paused(world, *paused)
    first = world.plain("first", range(7000, 7112), "")
    while not first.finished:
        world.step()
    world.plain("second", [*range(7000, 7112), *range(50)], "z")
    world.step()
    assert world.did.get("second") == "prefill"
    assert all(one.pause.held for one in world.parts.served.paused.values())


def test_a_question_leaves_no_note_for_a_chunk_that_is_not_computed() -> None:
    """Some kernels leave a state in mid-chunk. vLLM notes where, as it counts a chunk's blocks."""
    scheduler = make_scheduler(layout="state+full", blocks=40)
    world = World(scheduler)
    world.plain("a", range(40), "y" * 60)
    for _ in range(3):
        world.step()
    states = scheduler.kv_cache_manager.coordinator.single_type_managers[0]
    states.has_prefill_checkpoint_blocks = True
    states.kv_cache_spec = replace(
        states.kv_cache_spec, num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=1
    )
    request = scheduler.requests["a"]
    request.num_prompt_tokens = 90  # it has more to compute, of which vLLM may take none
    request._all_token_ids.extend(range(40))
    blocks, _ = world.parts.port.running_demand(0)
    assert blocks
    assert not states._checkpoints


# -- controls --------------------------------------------------------------------------------------


def test_control_a_layer_notices_what_another_wrote() -> None:
    memory = Memory(16)
    groups = groups_of("full+window+state", (16, 16), 20, True, 0)
    full = Attention(0, groups[0].kv_cache_spec, memory)
    window = Attention(1, groups[1].kv_cache_spec, memory)
    state = Recurrent(2, groups[2].kv_cache_spec, memory)
    hashes = list(range(1000, 1048))
    full.compute([1, 2, 3], hashes[:40], 0, "a")
    full.compute([1, 2, 3], hashes, 40, "a")
    window.compute([4, 5, 6], hashes[:40], 0, "a")
    memory.overwrite(4)
    window.compute([4, 5, 6], hashes, 40, "a")  # it no longer sees that block
    for layer, blocks in ((full, [1, 4, 3]), (full, [4, 5, 6]), (window, [4, 1, 6])):
        with pytest.raises(AssertionError, match="is not its own"):
            layer.compute(blocks, hashes, 47, "a")
    state.finish([7, 8, 9], hashes, [40], "a")
    state.compute([7, 8, 9], hashes, 40, "a")
    for computed, blocks in ((39, [7, 8, 9]), (41, [7, 8, 9]), (32, [7, 9, 8])):
        with pytest.raises(AssertionError, match="that of other tokens"):
            state.compute(blocks, hashes, computed, "a")
    full.compute([9], hashes[:8], 0, "b")
    with pytest.raises(AssertionError, match="that of other tokens"):
        state.compute([7, 8, 9], hashes, 40, "a")
