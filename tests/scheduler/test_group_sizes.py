"""Tokens and blocks where groups of layers have blocks of their own sizes.

Without prefix caching the block of a recurrent state is as long as the longest request, and so is
the common multiple that vLLM's scheduler calls its block size.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from caesura.intercept.kv.costs import PRIOR
from caesura.scheduler.policy.admission import Batched, Gate, Stock
from caesura.scheduler.vllm.engine.port.blocks import real_ids

from .clients import resumes
from .invariants import said_as_planned
from .layouts import LAYOUTS, room
from .steering import CALL, evict, step_until, until_paused
from .world import Session, World, make_scheduler

CACHED = pytest.mark.parametrize("cached", [True, False], ids=["cached", "uncached"])
EVERY = pytest.mark.parametrize("layout", LAYOUTS)


def make_world(layout: str, cached: bool, blocks: int = 100, **options: Any) -> World:
    return World(
        make_scheduler(
            layout=layout, prefix_caching=cached, blocks=room(layout, blocks, cached), **options
        )
    )


class Seen(Stock):
    """Admits all, and remembers the batch and the capacity that it was told."""

    name = "seen"

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        self.running, self.capacity = list(running), capacity_tokens
        return super().begin(running, capacity_tokens)


def real_blocks(world: World, request_id: str) -> int:
    return len(real_ids(world.parts.port.blocks_of(request_id)))


@EVERY
@CACHED
def test_a_batch_fills_as_much_of_the_cache_as_of_its_blocks(layout: str, cached: bool) -> None:
    """Admission, fair shares and rankings count in tokens, and vLLM's pool in blocks."""
    world = make_world(layout, cached)
    for number, tokens in enumerate((30, 100, 250)):
        world.plain(f"p{number}", range(number * 500, number * 500 + tokens), "x" * 60)
    for _ in range(20):
        world.step()
    world.parts.sessions.admission = seen = Seen()
    world.plain("new", range(9000, 9010), "x")
    world.step()
    port = world.parts.port
    held = sum(real_blocks(world, one.key) for one in seen.running)
    share = sum(one.held_tokens for one in seen.running) / seen.capacity
    # The last block of each group is partly filled, and a window may begin in mid-block. A state
    # that moves to the next block is twice there for a step.
    spare = 3 * 2 * len(layout.split("+"))
    assert len(seen.running) == 3
    assert held - spare <= share * port.blocks.total <= held + 3


@EVERY
@CACHED
def test_what_a_returned_request_lacks_is_what_it_computes(layout: str, cached: bool) -> None:
    world = make_world(layout, cached)
    session = world.session("a", range(130), CALL, "r" * 30 + "]", "done")
    until_paused(world, session)
    world.drop_kv("a")
    evict(world)
    world.answer(session)
    waiting = world.parts.chunking.waiting_tokens()
    world.did.clear()
    computed = 0
    while world.did.get("a") != "decode":
        computed += world.step()
    assert computed - 1 == waiting


@EVERY
@CACHED
def test_the_step_in_which_dropped_kv_comes_back_is_cut(layout: str, cached: bool) -> None:
    """The first one too, although the request still waits when its limit is set."""
    world = make_world(layout, cached, chunk="auto", long_step_decodes=0)
    world.parts.costs.restart(replace(PRIOR, saturation=20))
    session = world.session("a", range(200), CALL, "r]", "done")
    until_paused(world, session)
    world.drop_kv("a")
    evict(world)
    world.plain("decodes", range(3000, 3030), "x" * 60)
    step_until(world, lambda: world.did.get("decodes") == "decode")
    world.answer(session)
    assert world.step() <= 20


@EVERY
@CACHED
def test_records_count_the_blocks_that_a_request_has(layout: str, cached: bool) -> None:
    """Null blocks, which stand for what a window has passed, are no blocks."""
    world = make_world(layout, cached, host_blocks=0)
    world.plain("a", range(200), "x" * 60)
    session = world.session("b", range(500, 700), CALL, "r]", "done")
    while not session.paused:
        world.step()
    world.parts.recorder.flush()
    world.step()
    rows = [
        dict(zip(("request", "state", "blocks"), row, strict=True))
        for record in world.records
        if record["kind"] == "lanes"
        for row in zip(record["request"], record["state"], record["blocks"], strict=True)
    ]
    paused = [row for row in rows if row["state"] == "paused"]
    assert paused[-1]["blocks"] == real_blocks(world, "b")
    most = world.scheduler.kv_cache_manager.block_pool.num_gpu_blocks
    assert all(row["blocks"] < most for row in rows)
    for row in rows:
        if row["state"] == "decode":
            assert row["blocks"] <= real_blocks(world, row["request"]) + 2


def would_compute_again(world: World, request_id: str) -> int:
    """What the handling's view says of paused KV."""
    manager = world.parts.manager
    found = manager.views.of(manager.paused_kvs[request_id], world.now).recomputed
    assert found is not None
    return int(found)


def computes_again(world: World, session: Session) -> int:
    """Discard paused KV, let its tool return, and return what the resume reports."""
    known = len(resumes(world))
    world.drop_kv(session.request_id)
    world.answer(session)
    step_until(world, lambda: len(resumes(world)) > known or session.finished)
    report = resumes(world)[-1]
    return int(report["context_tokens"] - report["cached_tokens"])


@pytest.mark.parametrize("layout", [one for one in LAYOUTS if one not in ("full", "mla", "window")])
@CACHED
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("tokens", [40, 128, 143, 200])
def test_a_view_knows_what_would_be_computed_again(
    layout: str, cached: bool, asynchronous: bool, tokens: int
) -> None:
    """From the last checkpoint that the prefix cache has: less and less, as others take of it."""
    world = make_world(
        layout, cached, asynchronous=asynchronous, max_num_batched_tokens=64, handling="preserve"
    )
    world.depth = int(asynchronous)
    texts = [CALL, "r" * 20 + "]"] * 3
    session = world.session("a", range(tokens), *texts, "done")
    expected = []
    for taken in (lambda: None, lambda: evict(world), lambda: None):
        until_paused(world, session)
        before = would_compute_again(world, "a")
        taken()
        expected.append(would_compute_again(world, "a"))
        assert expected[-1] >= before
        assert computes_again(world, session) == expected[-1]
    world.run()
    said_as_planned(world)
    context = tokens + len(CALL) - 1
    assert cached == (expected[0] < context - 1)
    if cached and "state" in layout:
        assert expected[1] > tokens, "no state is left at the end of any block"


def test_a_plain_layout_has_prices_as_before() -> None:
    """Its missing blocks are known one by one."""
    world = make_world("full", True)
    session = world.session("a", range(130), CALL, "r]", "done")
    until_paused(world, session)
    manager = world.parts.manager
    assert manager.views.of(manager.paused_kvs["a"], world.now).recomputed is None


def test_the_cache_is_searched_again_only_when_others_took_of_it() -> None:
    world = make_world("state+full", True)
    session = world.session("a", range(130), CALL, "r]", "done")
    until_paused(world, session)
    coordinator = world.scheduler.kv_cache_manager.coordinator
    searched: list[int] = []
    find = coordinator.find_longest_cache_hit

    def counted(*args: Any) -> Any:
        searched.append(1)
        return find(*args)

    coordinator.find_longest_cache_hit = counted
    for _ in range(5):
        would_compute_again(world, "a")
    assert len(searched) <= 1
    evict(world)
    for _ in range(5):
        would_compute_again(world, "a")
    assert len(searched) <= 2


@pytest.mark.parametrize("layout", ["full", "state+full"])
def test_an_opening_has_bytes_and_what_a_discard_would_cost(layout: str) -> None:
    world = make_world(layout, True, host_blocks=0)
    world.parts.port.sizes.block_bytes = 1000
    session = world.session("a", range(130), CALL, "r]", "done")
    while not session.paused:
        world.step()
    manager = world.parts.manager
    expected = manager.views.of(manager.paused_kvs["a"], world.now).recomputed
    world.parts.recorder.flush()
    world.step()
    (opening,) = (one for one in world.records if one["kind"] == "opening")
    assert opening["bytes"] == 1000 * opening["blocks"] == 1000 * real_blocks(world, "a")
    assert opening["inputs"].get("recomputed") == expected
    assert (expected is None) == (layout == "full")
