"""The backlog that is read from a scheduler's records is that of its queue."""

from caesura.runtime.server.load.gate import Backlog, Machine

from .steering import CALL, until_paused
from .world import World, make_scheduler

BLOCKS, BLOCK_SIZE = 20, 16
MACHINE = Machine(BLOCK_SIZE, BLOCKS * BLOCK_SIZE, slots=16)


class Ticking:
    """A clock that goes on by a tenth of a second whenever it is read, so that steps take time."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 0.1
        return self._now


def test_the_queue_of_a_small_pool_is_seen_and_drains() -> None:
    world = World(make_scheduler(blocks=BLOCKS, host_blocks=100, clock=Ticking()))
    backlog, seen, most = Backlog(MACHINE), 0, 0.0
    for number in range(6):  # only two of them fit at a time
        world.plain(f"p{number}", range(1000 * number, 1000 * number + 120), "x" * 20)
    for _ in range(400):
        world.step()
        backlog.take(world.records[seen:])
        seen = len(world.records)
        most = max(most, backlog.seconds)
    world.drain()
    backlog.take(world.records[seen:])
    assert most > 0
    assert backlog.seconds == 0
    assert backlog.mean_seconds > 0


def test_a_paused_session_waits_for_its_tool_and_not_for_the_engine() -> None:
    world = World(make_scheduler(host_blocks=100, clock=Ticking()))
    session = world.session("a", range(100), CALL, " 42", "done")
    until_paused(world, session)
    world.drain()
    backlog = Backlog(MACHINE)
    backlog.take(world.records)
    assert backlog.seconds == 0 < backlog.mean_seconds
