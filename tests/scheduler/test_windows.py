"""Models that attend to a window: blocks that it has passed are given up, and keep their places."""

from vllm.v1.core.kv_cache_utils import get_block_hash

from .steering import CALL, IN_EVERY_MODE, finishes, until_paused
from .world import World, make_scheduler


@IN_EVERY_MODE
def test_blocks_behind_a_window_are_told_from_those_in_it(asynchronous: bool, depth: int) -> None:
    world = World(make_scheduler(asynchronous=asynchronous, layout="window"), depth)
    session = world.session("a", range(100), CALL, " 3]", " done")
    until_paused(world, session)
    manager = world.parts.manager
    paused = manager.paused_kvs["a"]
    held = paused.resident
    manager.release(paused, 1, world.now, "decided")
    kept = paused.detached
    assert kept and kept[0].is_null and not kept[-1].is_null
    for key, block in zip(paused.keys, kept, strict=False):
        assert block.is_null or get_block_hash(block.block_hash) == key
    assert paused.resident == held - 1
    finishes(world)
