"""Serving leaves the event loop its turns."""

import gc
import sys

import pytest

from caesura.runtime.server.listen import SWITCH_SECONDS, allow_thread_switches, frozen_heap


@pytest.mark.parametrize(("before", "after"), [(0.005, SWITCH_SECONDS), (0.0001, 0.0001)])
def test_threads_hand_over_soon(before, after):
    usual = sys.getswitchinterval()
    try:
        sys.setswitchinterval(before)
        allow_thread_switches()
        assert sys.getswitchinterval() == pytest.approx(after, abs=1e-5)
    finally:
        sys.setswitchinterval(usual)


def test_what_was_loaded_before_is_left_out_of_collections():
    before = gc.get_freeze_count()
    loaded = [[] for _ in range(1000)]
    with frozen_heap():
        assert gc.get_freeze_count() > len(loaded)
        assert not any(each is loaded for each in gc.get_objects())
    assert gc.get_freeze_count() <= before
    assert any(each is loaded for each in gc.get_objects())
