"""From what a run saw to figures."""

import pytest

from benchmarks.handling.figures import figures, handlings, needed_tokens, percentile


def segment(index: int, sent: float, first: float, given: int, said: int, handling: str) -> dict:
    return {
        "index": index,
        "sent": sent,
        "first": first,
        "given_tokens": given,
        "context_tokens": given if index == 0 else 17,
        "cached_tokens": 0 if index == 0 else 8,
        "said": said,
        "handling": handling,
    }


def session(counted: bool, ended: float) -> dict:
    return {
        "arrived": 1.0,
        "tool_seconds": 4.0,
        "ended": ended,
        "counted": counted,
        "segments": [
            segment(0, 1.0, 1.5, given=10, said=5, handling=""),
            segment(1, 6.0, 6.25, given=3, said=2, handling="discard"),
        ],
    }


RUN = {
    "seconds": 20.0,
    "ledger": {
        "steps": 10,
        "scheduled_tokens": 60,
        "busy_seconds": 5.0,
        "preemptions": 0,
        "peak_running": 2,
        "peak_blocks": 4,
    },
    "sessions": [session(True, 8.0), session(True, 0.0), session(False, 9.0)],
}


def test_figures_of_a_run() -> None:
    found = figures(RUN, window_seconds=10)
    assert found["latency_mean"] == pytest.approx((3.0 + 15.0) / 2)  # one was cut at 20 s
    assert found["latency_p99"] == 15.0
    assert found["ttft_first_mean"] == 0.5
    assert found["ttft_resumed_mean"] == 0.25
    assert found["recomputed_share"] == pytest.approx(1 - 3 * (14 + 4) / 60)
    assert found["recomputed_per_resume"] == 17 - 3 - 8
    assert found["sessions_per_second"] == pytest.approx(2 / 10)
    assert found["busy_share"] == 0.25
    assert (found["counted"], found["cut"]) == (2, 1)


def test_needed_tokens_are_the_contexts_without_their_last_token() -> None:
    # 10 + 5 decoded, the last of which is sent again with 2 new ones, and 2 decoded: 19 tokens.
    assert needed_tokens([session(True, 8.0)]) == 18


def test_handlings_are_counted() -> None:
    assert handlings(RUN) == {"discard": 3}


def test_percentiles_are_values_that_were_seen() -> None:
    values = list(range(1, 101))
    assert percentile(values, 0.99) == 99
    assert percentile(values, 0.5) == 50
    assert percentile([7.0], 0.99) == 7.0
