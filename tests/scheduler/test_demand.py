"""How many blocks waiting requests lack, and who of them did so when."""

from caesura.scheduler.records import WantedRow
from caesura.scheduler.vllm.engine.export.request_states import (
    MOST_INTERVALS,
    BlockDemand,
    lacked_blocks,
)
from caesura.scheduler.vllm.engine.sessions.recorder import Lack


def lack(request: str, needed: int = 10, free: int = 4) -> Lack:
    return Lack(request, "blocks", needed, free)


def test_those_who_were_looked_at_lack_what_they_need_beyond_the_free() -> None:
    assert lacked_blocks([], "", 9, 9) == 0
    assert lacked_blocks([Lack("a", "slots"), Lack("b", "")], "slots", 9, 9) == 0
    assert lacked_blocks([lack("a")], "", 1, 9) == 6
    assert lacked_blocks([lack("a"), Lack("b", ""), lack("c", 20, 3)], "", 3, 9) == 27


def test_those_in_line_count_like_those_before_them_as_far_as_there_are_slots() -> None:
    assert lacked_blocks([lack("a"), Lack("b", "")], "line", queued=5, slots=9) == 4 * 10 - 4
    assert lacked_blocks([lack("a")], "line", queued=500, slots=3) == 3 * 10 - 4
    assert lacked_blocks([lack("a")], "line", queued=500, slots=0) == 6
    assert lacked_blocks([lack("a")], "tokens", queued=500, slots=9) == 6


def stepped(demand: BlockDemand, now: float, *lacking: str, free: int = 4) -> None:
    demand.looked([lack(each) for each in lacking], "")
    demand.stepped(now, free, len(lacking), 16)


def test_who_lacked_blocks_longest_comes_first() -> None:
    demand = BlockDemand()
    charge = demand.begin(0.0, 20)
    stepped(demand, 1.0, "a", "b")
    stepped(demand, 2.0, "b")
    stepped(demand, 5.0)
    stepped(demand, 6.0, "a")
    requests, rows = demand.wanted(charge, 0.0, 7.0)
    assert (requests, rows) == (2, (WantedRow("b", 4.0), WantedRow("a", 2.0)))
    assert demand.wanted(charge, 1.5, 1.75).rows == (WantedRow("a", 0.25), WantedRow("b", 0.25))
    demand.end(charge, 7.0)
    assert charge.wanted.wanted == 4.0 + 1.0


def test_the_rows_are_few_and_the_requests_are_all() -> None:
    demand = BlockDemand()
    charge = demand.begin(0.0, 20)
    stepped(demand, 1.0, *map(str, range(9)))
    requests, rows = demand.wanted(charge, 0.0, 2.0)
    assert (requests, len(rows)) == (9, 5)


def test_a_request_that_queues_behind_its_pause_is_not_one_of_the_others() -> None:
    demand = BlockDemand()
    mine, other = demand.begin(0.0, 20), demand.begin(0.0, 20)
    demand.result(mine, 1.0, "a")
    stepped(demand, 1.0, "a", "b")
    assert demand.wanted(mine, 0.0, 3.0) == (1, (WantedRow("b", 2.0),))
    assert demand.wanted(other, 0.0, 3.0).requests == 2
    demand.end(mine, 3.0)
    assert demand.wanted(other, 0.0, 3.0).requests == 2, "who has run again lacked all the same"


def test_a_step_in_which_nobody_was_looked_at_ends_the_lack() -> None:
    demand = BlockDemand()
    charge = demand.begin(0.0, 20)
    stepped(demand, 1.0, "a")
    demand.stepped(2.0, 4, 0, 16)
    demand.end(charge, 9.0)
    assert charge.wanted.wanted == 1.0


def test_who_lacked_blocks_before_all_open_pauses_is_forgotten() -> None:
    demand = BlockDemand()
    first, second = demand.begin(0.0, 20), demand.begin(50.0, 20)
    for now in range(100):
        stepped(demand, float(now), str(now))
    assert len(demand._past) == 99
    demand.end(first, 100.0)
    assert {who for *_, who in demand._past} == {str(now) for now in range(50, 99)}
    demand.end(second, 101.0)
    assert not demand._past
    stepped(demand, 102.0, "x")
    stepped(demand, 103.0, "y")
    assert not demand._past, "nobody is paused, so nobody asks"


def test_the_log_is_bounded() -> None:
    demand = BlockDemand()
    demand.begin(0.0, 20)
    for now in range(MOST_INTERVALS + 100):
        stepped(demand, float(now), str(now))
    assert len(demand._past) == MOST_INTERVALS
