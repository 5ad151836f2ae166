"""Serving leaves the event loop its turns."""

import sys

import pytest

from caesura.runtime.server.listen import SWITCH_SECONDS, let_the_loop_in


@pytest.mark.parametrize(("before", "after"), [(0.005, SWITCH_SECONDS), (0.0001, 0.0001)])
def test_threads_hand_over_soon(before, after):
    usual = sys.getswitchinterval()
    try:
        sys.setswitchinterval(before)
        let_the_loop_in()
        assert sys.getswitchinterval() == pytest.approx(after, abs=1e-5)
    finally:
        sys.setswitchinterval(usual)
