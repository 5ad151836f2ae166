"""The words of calls and the errors of results that a workload states reach the predictor."""

from dataclasses import replace
from typing import ClassVar

from caesura.scheduler.predict.facts import CallWords
from caesura.scheduler.predict.forecast import About
from caesura.scheduler.predict.history import History
from caesura.simulator.engine import simulate
from caesura.simulator.policy import Policy

from .simulated import machine, session, workload


class Noting(History):
    """A history that keeps what it is told of segments."""

    told: ClassVar[list[About]] = []

    def observe_segment(self, about: About, decoded_tokens: int, called: bool) -> None:
        super().observe_segment(about, decoded_tokens, called)
        self.told.append(about)


def test_the_facts_of_each_segment_are_those_at_its_begin() -> None:
    Noting.told.clear()
    one = session("a", (40, 5, 1.0), (20, 5, 1.0), (10, 5))
    first = replace(one.segments[0], words=CallWords((7, 8), (7,)), failed=True)
    one = replace(one, segments=(first, *one.segments[1:]))
    policy = Policy("noting", settings={"prediction": f"{__name__}.Noting"})
    simulate(workload(one), machine(), policy)
    before, after, last = (about.facts for about in Noting.told)
    assert (before.words, before.errors, before.context_tokens) == ((), 0, 40)
    assert (after.words, after.heads, after.errors, after.last_error) == (
        (7, 8),
        ((7, 1),),
        1,
        True,
    )
    assert (last.words, last.heads, last.errors, last.last_error) == ((), ((7, 1),), 1, False)
