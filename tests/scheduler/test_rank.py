"""The rankings together, and those that are one number: first come, and shortest job first."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.scheduler.policy.caesura import Caesura
from caesura.scheduler.policy.lamps import Lamps
from caesura.scheduler.policy.names import DEFAULT_RANKING, RANKINGS, make_ranking
from caesura.scheduler.policy.ranking import Queued, QueueView

from .queues import ANY_VIEW, any_queued, queued, score, view

NAMES = pytest.mark.parametrize("name", RANKINGS)


def test_by_name() -> None:
    assert {make_ranking(name).name for name in RANKINGS} == set(RANKINGS)
    assert DEFAULT_RANKING in RANKINGS
    assert make_ranking("caesura:beta=300") == Caesura(beta=300.0)
    assert make_ranking("lamps:others=false,refresh_steps=1") == Lamps(1, 100, others=False)
    assert make_ranking("caesura.scheduler.policy.lamps.Lamps") == Lamps()
    with pytest.raises(
        ValueError, match="ranking 'sjf': unknown name 'sjf'; choose from: fcfs, caesura"
    ):
        make_ranking("sjf")


@pytest.mark.parametrize(
    "spec",
    [
        "caesura:beta=-1",
        "caesura:beta=nan",
        "caesura:most_calls=-1",
        "caesura:restore_weight=inf",
        "ssjf:ageing=-1",
        "ssjf:ageing=inf",
        "lamps:refresh_steps=-1",
        "lamps:starvation_steps=-1",
        "fcfs:beta=1",
    ],
)
def test_parameters_that_make_no_sense(spec: str) -> None:
    with pytest.raises(ValueError, match=f"ranking '{spec}'"):
        make_ranking(spec)


@NAMES
@given(one=any_queued(), seen=ANY_VIEW)
def test_the_same_view_the_same_score(name: str, one: Queued, seen: QueueView) -> None:
    ranking = make_ranking(name)
    first = ranking.score(one, seen)
    ranking.score(queued(context_tokens=7, ends=()), view())
    assert ranking.score(one, seen) == first == make_ranking(name).score(one, seen)
    assert all(value == value and abs(value) < inf for value in first)


@NAMES
@given(one=any_queued(), seen=ANY_VIEW, later=st.floats(0.1, 1e3))
def test_of_two_alike_the_first_to_arrive_is_never_behind(
    name: str, one: Queued, seen: QueueView, later: float
) -> None:
    behind = replace(one, arrival=one.arrival + later)
    ranking = make_ranking(name)
    assert ranking.score(one, seen) <= ranking.score(behind, seen)


# -- fcfs and ssjf --------------------------------------------------------------------------------


def test_first_come_first_served_knows_nothing_else() -> None:
    assert score("fcfs", queued(arrival=3.5)) == (3.5,)
    assert score("fcfs", queued(arrival=3.5, queued_at=99.0, context_tokens=9)) == (3.5,)


def test_the_shortest_segment_first_then_the_arrival() -> None:
    short, long = queued(decode_tokens=10.0, arrival=9.0), queued(decode_tokens=11.0, arrival=1.0)
    assert score("ssjf", short) == (10.0, 9.0) < score("ssjf", long)
    assert score("ssjf", replace(short, arrival=1.0)) < score("ssjf", short)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 100)), min_size=2, max_size=6))
def test_ageing_orders_by_tokens_less_what_was_waited_for(waits: list[tuple[int, int]]) -> None:
    now, rate = 128.0, 0.5  # exact in binary, so that ties are ties in both
    pairs = [queued(decode_tokens=float(t), queued_at=float(at)) for t, at in waits]
    keys = [score(f"ssjf:ageing={rate}", one)[0] for one in pairs]
    aged = [one.forecast.decode_tokens - rate * (now - one.queued_at) for one in pairs]
    assert [a < b for a in keys for b in keys] == [a < b for a in aged for b in aged]
