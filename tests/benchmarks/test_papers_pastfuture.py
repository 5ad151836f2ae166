"""The admissions and the sums behind Past-Future's Table 1."""

import pytest

from benchmarks.papers.pastfuture_table import ADMISSIONS, PAPER, Size, cell_of, figure_of
from benchmarks.papers.pastfuture_table import table_run as run_table
from benchmarks.papers.pastfuture_watch import UNUSED, Optimum, Watched, watching
from caesura.scheduler.policy.admission import Batched


def one(key: str, held: int, generated: int = 0) -> Batched:
    return Batched(key, "d1", held, generated, 100)


def test_optimum_keeps_the_true_peak_within_the_capacity() -> None:
    # At the end of b: a holds 10 + 20, b 10 + 20, each with an unused part of a block.
    peak = 2 * (10 + UNUSED + 20)
    with watching({"a": 40, "b": 20}):
        assert Optimum().begin([one("a", 10)], peak).admits(one("b", 10))
        assert not Optimum().begin([one("a", 10)], peak - 1).admits(one("b", 10))
        assert Optimum().begin([], 1).admits(one("a", 10))


def test_optimum_counts_what_is_decoded_already() -> None:
    with watching({"a": 40, "b": 20}):
        # a ends first now: 10 steps, in which both grow.
        peak = (40 + UNUSED + 10) + (10 + UNUSED + 10)
        assert Optimum().begin([one("a", 40, 30)], peak).admits(one("b", 10))
        assert not Optimum().begin([one("a", 40, 30)], peak - 1).admits(one("b", 10))


def test_watched_decides_at_intervals_and_notes_the_batch() -> None:
    admission = Watched("aggressive", interval=3, watermark=1.0)
    with watching({"a": 10, "b": 10, "c": 10}) as log:
        batch = [one("a", 20)]
        opened = [admission.begin(batch, 100).admits(one("b", 20)) for _ in range(6)]
        assert opened == [False, False, True, False, False, True]
        assert (log.steps, log.batched, log.decisions) == (6, 6, 1)
        assert log.memory == pytest.approx(6 * 0.2)
        assert log.future == pytest.approx(0.3)


def test_watched_tells_evictions_from_ends_and_stops_with_the_last() -> None:
    admission = Watched("aggressive", interval=1)
    with watching({"a": 10, "b": 10, "c": 10, "d": 10}) as log:
        admission.begin([one("a", 20), one("b", 20)], 100)
        admission.begin([one("a", 21)], 100)
        assert log.evicted == 1
        admission.observe("d1", 10)
        admission.begin([one("b", 22)], 100)
        assert log.evicted == 1
        steps = log.steps
        admission.begin([one("b", 23), one("d", 20)], 100)
        assert log.steps == steps


def test_watched_leaves_out_the_first_requests() -> None:
    admission = Watched("aggressive", skip=2)
    with watching({"a": 10, "b": 10, "c": 10, "d": 10}) as log:
        admission.begin([one("b", 20)], 100)
        assert log.steps == 0
        admission.begin([one("b", 20), one("c", 20)], 100)
        assert log.steps == 1


def test_every_row_of_the_paper_names_an_admission() -> None:
    assert {method for rows in PAPER.values() for method in rows} == set(ADMISSIONS)


def test_a_row_is_run_and_measured() -> None:
    size = Size(requests=60, skip=5, part=1 / 16)
    optimum, greedy, careful = (
        figure_of("d1", run_table(cell_of("d1", method, size, 1), lambda _: None))
        for method in ("optimum", "aggressive 99 %", "conservative")
    )
    assert optimum.evicted == careful.evicted == 0
    assert careful.future < optimum.future < greedy.future
    assert optimum.future <= 100
    assert greedy.evicted > 0
    assert careful.memory < optimum.memory < greedy.memory
    assert greedy.steps < optimum.steps < careful.steps
