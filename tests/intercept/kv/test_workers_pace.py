"""Copies of several workers count when all have made theirs, at the pace of the slowest."""

from caesura.intercept.kv.costs import Pace, WorkersPace


def test_one_worker_is_its_own_pace() -> None:
    pace = WorkersPace(1)
    assert pace.add(0, 64, 0.5, 0.25) == Pace(64, 0.5, 0.25)
    assert pace.add(0, 32, 0.1, 0.0) == Pace(32, 0.1, 0.0)


def test_a_report_waits_for_those_of_the_others() -> None:
    pace = WorkersPace(3)
    assert pace.add(0, 64, 0.5, 0.1) is None
    assert pace.add(2, 64, 0.7, 0.2) is None
    assert pace.add(1, 64, 0.6, 0.3) == Pace(64, 0.7, 0.2)
    assert pace.add(1, 64, 0.6, 0.3) is None


def test_reports_in_pieces_give_the_true_rate() -> None:
    """Neither the sum of all seconds nor the maximum of each step's would."""
    pace = WorkersPace(2)
    found = [pace.add(0, 100, 1.0, 0.0)]
    found += [pace.add(1, 25, 0.5, 0.0) for _ in range(4)]
    done = [each for each in found if each is not None]
    assert sum(each.tokens for each in done) == 100
    assert sum(each.seconds for each in done) == 2.0


def test_what_some_workers_did_not_copy_is_forgotten() -> None:
    pace = WorkersPace(2)
    assert pace.add(0, 640, 9.0, 9.0) is None
    pace.forget()
    assert pace.add(0, 64, 0.5, 0.0) is None
    assert pace.add(1, 64, 0.5, 0.0) == Pace(64, 0.5, 0.0)
