"""The sessions of `benchmarks.handling`: deterministic, like the table, and small enough."""

import random
import statistics
from collections import defaultdict
from itertools import pairwise

import pytest

from benchmarks.handling.mix import TABLE, Mix
from benchmarks.handling.model import CALLS, END, VOCABULARY, WORDS
from benchmarks.handling.replay import LONGEST_PAUSE_SECONDS, TOOL, Replay
from benchmarks.handling.workload import (
    Segment,
    Session,
    Speed,
    counted,
    fit,
    pauses,
    peak_context,
    poisson,
)

CONTEXT = 2048
SCALE = 1 / 4


def mix(rate: float = 10, seconds: float = 600, seed: int = 1) -> list[Session]:
    return poisson(Mix(SCALE, 0.5, CONTEXT).draw, rate, seconds, seed)


def replay(rate: float = 10, seconds: float = 100, seed: int = 1) -> list[Session]:
    return poisson(Replay(1 / 48, 0.5, CONTEXT).draw, rate, seconds, seed)


@pytest.mark.parametrize("draw", [mix, replay])
def test_the_same_seed_gives_the_same_sessions(draw) -> None:
    once, again, other = draw(seed=1), draw(seed=1), draw(seed=2)
    assert once == again
    assert [session.words() for session in once[:5]] == [session.words() for session in again[:5]]
    assert once[0].segments != other[0].segments


@pytest.mark.parametrize("draw", [mix, replay])
def test_another_rate_brings_the_same_sessions_at_other_moments(draw) -> None:
    slow, fast = draw(rate=2, seconds=50), draw(rate=4, seconds=50)
    assert len(slow) < len(fast)
    for one, other in zip(slow, fast, strict=False):
        assert one.segments == other.segments
        assert one.arrival_seconds == pytest.approx(2 * other.arrival_seconds)


@pytest.mark.parametrize("draw", [mix, replay])
def test_sessions_fit_the_model(draw) -> None:
    for session in draw(seconds=100):
        assert 0 < session.context_tokens <= CONTEXT
        assert all(each.given_tokens > 0 and each.decode_tokens > 0 for each in session.segments)
        assert all(each.tool for each in session.segments[:-1])
        assert session.segments[-1].tool == ""
        assert session.segments[-1].tool_seconds == 0


def test_arrivals_are_poisson() -> None:
    arrivals = [session.arrival_seconds for session in mix(rate=10, seconds=600)]
    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    assert arrivals[-1] < 600
    assert statistics.fmean(gaps) == pytest.approx(0.1, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.1, rel=0.1)


def test_the_mix_has_the_means_of_the_table() -> None:
    sessions = mix()
    seconds, contexts, calls = defaultdict(list), defaultdict(list), defaultdict(list)
    for kind, pause, context in pauses(sessions):
        seconds[kind].append(pause / 0.5)
        contexts[kind].append(context / SCALE)
    for session in sessions:
        calls[session.kind].append(len(session.segments) - 1)
    assert {kind: len(of) for kind, of in calls.items()} == pytest.approx(
        dict.fromkeys(TABLE, len(sessions) / len(TABLE)), abs=1
    )
    for kind, tool in TABLE.items():
        assert statistics.fmean(seconds[kind]) == pytest.approx(tool.call_seconds[0], rel=0.05)
        assert statistics.stdev(seconds[kind]) == pytest.approx(tool.call_seconds[1], rel=0.1)
        assert statistics.fmean(calls[kind]) == pytest.approx(tool.calls[0], rel=0.05)
        assert statistics.stdev(calls[kind]) == pytest.approx(tool.calls[1], rel=0.1)
        assert statistics.fmean(contexts[kind]) == pytest.approx(tool.context_tokens[0], rel=0.1)


@pytest.mark.parametrize("scale", [1 / 4, 1 / 8])
def test_scaling_keeps_the_mean_of_small_counts(scale: float) -> None:
    sessions = poisson(Mix(scale, 1, CONTEXT).draw, 10, 300, 1)
    for kind in ("ve", "chatbot"):
        decoded = [s.decode_tokens for each in sessions if each.kind == kind for s in each.segments]
        assert statistics.fmean(decoded) / scale == pytest.approx(
            TABLE[kind].decode_tokens, rel=0.08
        )


def test_recorded_pauses_are_capped() -> None:
    waits = [seconds for _, seconds, _ in pauses(replay())]
    assert max(waits) == LONGEST_PAUSE_SECONDS * 0.5
    assert statistics.median(waits) == pytest.approx(7 * 0.5, abs=1)


def test_words_are_plain_and_of_the_session_alone() -> None:
    one, other = mix(seconds=10)[:2]
    assert [len(words) for words in one.words()] == [s.given_tokens for s in one.segments]
    assert all(word in WORDS for words in one.words() for word in words)
    assert one.words()[0][:8] != other.words()[0][:8]


def test_every_tool_has_a_token_that_is_a_call_of_it() -> None:
    assert {*TABLE, TOOL} == set(CALLS)
    tokens = {*CALLS.values(), END}
    assert len(tokens) == len(CALLS) + 1
    assert all(WORDS.stop <= token < VOCABULARY for token in tokens)


def test_what_does_not_fit_is_left_out() -> None:
    segments = [Segment(10, 5, "qa", 1.0), Segment(3, 5, "qa", 2.0), Segment(3, 5, "", 0.0)]
    assert fit(segments, 31) == segments
    assert fit(segments, 30) == [segments[0], Segment(3, 5, "", 0.0)]
    assert fit(segments, 14) == []


def world() -> list[Session]:
    """Two sessions: the second comes while the first one waits for its tool."""
    first = Session("a", "qa", 0.0, (Segment(100, 10, "qa", 5.0), Segment(10, 10, "", 0.0)))
    return [first, Session("b", "qa", 3.0, (Segment(50, 10, "", 0.0),))]


def test_who_is_counted() -> None:
    assert counted(world(), 0, 10) == {"a", "b"}
    assert counted(world(), 0, 4) == {"b"}
    assert counted(world(), 1, 10) == {"b"}


def test_the_peak_is_what_all_hold_together() -> None:
    speed = Speed(prefill_seconds=0.01, decode_seconds=0.01, step_seconds=0.1)
    assert peak_context(world(), speed) == 110 + 60
    assert speed.work_seconds(world()[1]) == pytest.approx(0.6)
    assert peak_context([], speed) == 0


def test_drawing_does_not_depend_on_the_global_generator() -> None:
    random.seed(1)
    once = mix(seconds=5)
    random.seed(2)
    assert mix(seconds=5) == once
