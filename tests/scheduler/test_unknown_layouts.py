"""Layouts of KV caches that Caesura does not know: served with discard only, which is said."""

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from vllm.v1 import kv_cache_interface as interface
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupRole,
    KVCacheGroupSpec,
    KVCacheSpec,
    SlidingWindowMLASpec,
    UniformTypeKVCacheSpecs,
)

from caesura.scheduler.records import PauseRecord, parse
from caesura.scheduler.vllm.engine.connector import why_not_swapped
from caesura.scheduler.vllm.engine.export.metrics import KVMetrics
from caesura.scheduler.vllm.engine.port.layout import KINDS, UNKNOWN, kind_of, unknown_in
from tests.scheduler import layouts
from tests.scheduler.clients import clients_come_and_go, converse, resumes

from .invariants import check_rest, said_as_planned
from .layouts import LAYOUTS, groups_of, is_recurrent, room
from .steering import CALL, until_paused
from .world import World, make_scheduler

EVERY = pytest.mark.parametrize("layout", layouts.UNKNOWN)
CACHED = pytest.mark.parametrize("cached", [True, False], ids=["cached", "uncached"])
AHEAD = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
SHAPE: dict[str, Any] = {
    "block_size": 16,
    "num_kv_heads": 1,
    "head_size": 1,
    "dtype": torch.float32,
}


def make_world(layout: str, cached: bool, asynchronous: bool, **options: Any) -> World:
    drafts, ahead = options.get("drafts", 0), int(asynchronous)
    blocks = room(layout, options.pop("blocks", 100), cached, drafts, ahead)
    given: dict[str, Any] = {"layout": layout, "prefix_caching": cached}
    given |= {"blocks": blocks, "asynchronous": asynchronous, **options}
    return World(make_scheduler(**given), int(asynchronous))


def config_of(spec: KVCacheSpec, **about: Any) -> KVCacheConfig:
    return KVCacheConfig(1, [], [KVCacheGroupSpec(["layer"], spec, **about)])


@EVERY
@CACHED
@AHEAD
@pytest.mark.parametrize("handling", ["preserve", "swap"])
def test_every_pause_is_a_discard(
    layout: str, cached: bool, asynchronous: bool, handling: str
) -> None:
    world = make_world(layout, cached, asynchronous, host_blocks=200, handling=handling)
    assert world.parts.manager.planner is None
    converse(world)
    found = resumes(world)
    assert len(found) == 12
    assert all(one["handling"] == "discard" for one in found)
    assert all(one["cached_tokens"] % world.block_size == 0 for one in found)
    assert any(one["cached_tokens"] for one in found) == cached
    said_as_planned(world)
    check_rest(world)


@EVERY
@CACHED
@AHEAD
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]
)
def test_random_clients(layout: str, cached: bool, asynchronous: bool, seed: int) -> None:
    rng = random.Random(seed)
    world = make_world(
        layout,
        cached,
        asynchronous,
        blocks=rng.choice([34, 60, 200]),
        max_num_seqs=rng.choice([2, 5, 16]),
        max_num_batched_tokens=rng.choice([32, 64, 512]),
        drafts=rng.choice([0, 0, 3]),
        handling=rng.choice(["caesura", "preserve", "swap"]),
    )
    clients_come_and_go(world, rng, 100)


@EVERY
@CACHED
def test_the_start_says_so_once_for_each_thing_that_is_off(
    layout: str, cached: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(layout, cached, False, host_blocks=10)
    assert not world.parts.follow_ups.enabled
    name = "InventedStateSpec" if is_recurrent(layout) else "InventedSpec"
    why = f"the KV cache has layers of a kind that Caesura does not know: {name}"
    for line in (
        f"{why}: the KV cache of a request that pauses is discarded",
        f"KV is not kept for the follow-ups of clients' calls: {why}",
        f"swapping is off: {why}",
    ):
        assert caplog.text.count(line) == 1
    converse(world)
    assert caplog.text.count(why) == 3


@EVERY
def test_records_and_metrics_say_so(layout: str) -> None:
    world = make_world(layout, True, False, host_blocks=10)
    session = world.session("a", range(40), CALL, " 3]", " is it")
    until_paused(world, session)
    world.answer(session)
    world.run()
    registry = CollectorRegistry()

    def make(kind: Any, **about: Any) -> Any:
        return kind(registry=registry, **about)

    metrics = KVMetrics(make, Counter, Gauge, Histogram, ["model"])
    pauses = [one for line in world.records if isinstance(one := parse(line), PauseRecord)]
    for one in pauses:
        metrics.take(one, ["m"])
    released = [(row.why, row.act) for one in pauses for row in one.decisions]
    assert released == [(UNKNOWN, "discard")]
    labels = {"model": "m", "why": UNKNOWN}
    blocks = registry.get_sample_value("caesura_kv_released_blocks_total", labels)
    assert blocks == sum(row.blocks for one in pauses for row in one.decisions) > 0


# -- what is known ---------------------------------------------------------------------------------


def _layers(cls: type[KVCacheSpec]) -> set[type[KVCacheSpec]]:
    below = {cls}.union(*map(_layers, cls.__subclasses__()))
    return {one for one in below if one.__module__ == interface.__name__}


def test_the_known_kinds_are_those_that_worlds_run() -> None:
    run = {
        type(group.kv_cache_spec)
        for layout in LAYOUTS
        for group in groups_of(layout, (16, 16), 40, True, 0)
    }
    assert run == set(KINDS)


def test_every_other_class_of_vllm_is_unknown() -> None:
    """A class that a new release adds shows here. It is unknown until a world runs it."""
    without_layers = {KVCacheSpec, interface.AttentionSpec, UniformTypeKVCacheSpecs}
    other = _layers(KVCacheSpec) - without_layers - set(KINDS)
    assert {one.__name__ for one in other} == {
        "CircularBufferSpec",
        "CrossAttentionSpec",
        "EncoderOnlyAttentionSpec",
        "HiSparseHotSpec",
        "HiSparseResidentSpec",
        "HiddenStateCacheSpec",
        "RSWASpec",
        "SinkFullAttentionSpec",
    }


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (interface.SinkFullAttentionSpec(**SHAPE, sink_len=16), "SinkFullAttentionSpec"),
        (interface.RSWASpec(**SHAPE, rswa_window=64), "RSWASpec"),
        (interface.CrossAttentionSpec(**SHAPE), "CrossAttentionSpec"),
        (interface.CircularBufferSpec(**SHAPE), "CircularBufferSpec"),
        (FullAttentionSpec(**SHAPE, non_causal=True), "FullAttentionSpec that sees later tokens"),
        (
            SlidingWindowMLASpec(**SHAPE, sliding_window=64, bounded_replay=True),
            "SlidingWindowMLASpec that the prefix cache leaves out",
        ),
        (
            replace(
                groups_of("state", (16, 16), 40, True, 0)[0].kv_cache_spec, mamba_cache_mode="all"
            ),
            "MambaSpec with the cache mode 'all'",
        ),
    ],
)
def test_what_differs_within_a_class_is_unknown_too(spec: KVCacheSpec, said: str) -> None:
    assert not kind_of(spec)
    assert unknown_in(config_of(spec)).endswith(f"does not know: {said}")
    assert why_not_swapped(config_of(spec)).endswith(f"does not know: {said}")
    among = {"a": FullAttentionSpec(**SHAPE), "b": spec}
    mixed = UniformTypeKVCacheSpecs(block_size=16, kv_cache_specs=among)
    assert unknown_in(config_of(mixed)).endswith(f"does not know: {said}")


def test_blocks_outside_the_devices_pool_are_unknown() -> None:
    spec = FullAttentionSpec(**SHAPE)
    assert not unknown_in(config_of(spec))
    assert not why_not_swapped(config_of(spec))
    assert "in main memory" in unknown_in(config_of(spec, host_resident=True))
    role = KVCacheGroupRole.HISPARSE_SOURCE
    assert "as hisparse_source" in unknown_in(config_of(spec, role=role))
