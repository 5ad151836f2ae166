"""What `benchmarks.machine` tells of the machine."""

import multiprocessing
import os
import time

import psutil
import pytest

from benchmarks import machine


def times(busy: float, idle: float) -> tuple[float, ...]:
    fields = {"user": busy, "idle": idle, "iowait": 0.0, "guest": 0.0, "guest_nice": 0.0}
    return type("Times", (tuple,), fields)((busy, idle, 0.0, 0.0, 0.0))


def test_the_load_of_others_leaves_out_ours_and_our_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machines = iter([times(100.0, 900.0), times(112.0, 908.0)])
    ours = iter([os.times_result((1, 1, 5, 5, 0)), os.times_result((2, 1, 9, 6, 0))])
    clock = iter([50.0, 60.0])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(machines))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "times", lambda: next(ours))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with machine.Load() as load:
        pass
    # 12 busy seconds less 6 of ours, of 20 seconds that two cores have in 10.
    assert load.others == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("flags", "has"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16", True),
        ("Features\t: fp asimd bf16", True),
        ("flags\t\t: fpu avx2 avx512f", False),
        ("processor\t: 0", False),
    ],
)
def test_bfloat16_is_read_off_the_flags(
    flags: str, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, value = (part.strip() for part in flags.partition(":"))
    monkeypatch.setattr(machine, "_cpuinfo", lambda: {name: value})
    assert machine.has_bfloat16() is has


def test_a_child_that_is_ending_is_waited_for() -> None:
    with machine.Load():
        child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
        child.start()
    with pytest.raises(ChildProcessError):  # it was reaped, so that its time counts
        os.waitpid(child.pid or 0, os.WNOHANG)


def test_programs_beside_are_gone_afterwards() -> None:
    with machine.beside(1):
        children = multiprocessing.active_children()
        assert len(children) == 1
    assert not children[0].is_alive()
