"""Models that attend to a window alone: what it has passed is given up, the rest as a whole."""

from .steering import CALL, IN_EVERY_MODE, finishes, until_paused
from .world import World, make_scheduler


@IN_EVERY_MODE
def test_blocks_of_a_window_are_released_together(asynchronous: bool, depth: int) -> None:
    """Without its last block, the others of a window would be of no use."""
    world = World(make_scheduler(asynchronous=asynchronous, layout="window"), depth)
    session = world.session("a", range(100), CALL, " 3]", " done")
    until_paused(world, session)
    manager = world.parts.manager
    paused = manager.paused_kvs["a"]
    blocks = manager.paused_kvs.blocks.of(paused)
    assert blocks[0].is_null
    held = paused.resident
    assert held < len(blocks)
    assert manager.release(paused, 1, world.now, "decided") == held
    assert not paused.resident
    finishes(world)
