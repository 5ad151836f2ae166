"""What sessions of the simulator's workloads look like: as their tables say, and by the seed."""

import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from caesura.simulator.session import Segment, Session, Workload
from caesura.simulator.workload.conversations import CHAT_MOST
from caesura.simulator.workload.draw import Shape, fit, lognormal_of, reshaped
from caesura.simulator.workload.names import make_workload
from caesura.simulator.workload.papers import (
    DISTRIBUTIONS,
    INFERCEPT_TOOLS,
    TOOLBENCH_CALLS,
    TOOLBENCH_MOST,
    TOOLBENCH_PROMPT,
    TOOLBENCH_SECONDS,
)
from caesura.simulator.workload.sources import SOURCES

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
RUNS = DATA / "agent_runs.jsonl.gz"
DRAWN = [name for name, source in SOURCES.items() if not source.file]


def made(spec: str, rate: float = 10, seconds: float = 60, seed: int = 1) -> Workload:
    return make_workload(spec, rate, seconds, seed, RUNS if spec.startswith("replay") else None)


def pauses(sessions: tuple[Session, ...]) -> Iterator[tuple[str, float, int]]:
    """Yield kind, seconds and context of every call."""
    for session in sessions:
        context = 0
        for segment, _ in pairwise(session.segments):
            context += segment.given_tokens + segment.decode_tokens
            yield session.kind, segment.tool_seconds, context


@pytest.mark.parametrize("name", [*DRAWN, "replay"])
def test_the_same_seed_gives_the_same_workload(name: str) -> None:
    once, again, other = made(name), made(name), made(name, seed=2)
    assert once == again
    assert (once.seed, other.seed) == (1, 2)
    assert [each.segments for each in once.sessions] != [each.segments for each in other.sessions]
    keys = [each.key for each in once.sessions if not each.parent]
    assert keys == [f"1-{index}" for index in range(len(keys))]


@pytest.mark.parametrize("name", [*DRAWN, "replay"])
def test_sessions_are_well_formed(name: str) -> None:
    workload = made(f"{name}:context=8000", seconds=30)
    assert workload.sessions
    for session in workload.sessions:
        assert 0 < session.context_tokens <= 8000
        assert all(each.given_tokens > 0 and each.decode_tokens > 0 for each in session.segments)
        assert all(each.tool and each.tool_seconds >= 0 for each in session.segments[:-1])
        assert (session.segments[-1].tool, session.segments[-1].tool_seconds) == ("", 0.0)
        for each in session.segments:
            assert each.most_tokens == 0 or each.decode_tokens <= each.most_tokens <= 5000


@pytest.mark.parametrize("name", ["mix", "toolbench", "ssjf:rounds=2", "replay"])
def test_another_rate_brings_the_same_sessions_at_other_moments(name: str) -> None:
    slow, fast = made(name, rate=2).sessions, made(name, rate=4).sessions
    assert len(slow) < len(fast)
    for one, other in zip(slow, fast, strict=False):
        assert (one.key, one.kind, one.segments) == (other.key, other.kind, other.segments)
        assert one.arrival == pytest.approx(2 * other.arrival)


def test_drawing_does_not_depend_on_the_global_generator() -> None:
    random.seed(1)
    once = made("mix")
    random.seed(2)
    assert made("mix") == once


@pytest.mark.parametrize("spec", ["mix", "mix:balanced=yes"])
def test_the_mix_has_the_moments_of_the_table(spec: str) -> None:
    sessions = made(spec, rate=10, seconds=1500).sessions
    seconds, contexts, calls = defaultdict(list), defaultdict(list), defaultdict(list)
    for kind, pause, context in pauses(sessions):
        seconds[kind].append(pause)
        contexts[kind].append(context)
    for session in sessions:
        calls[session.kind].append(len(session.segments) - 1)
    assert set(calls) == set(INFERCEPT_TOOLS)
    for kind, tool in INFERCEPT_TOOLS.items():
        assert len(calls[kind]) == pytest.approx(len(sessions) / 6, rel=0.1)
        assert statistics.fmean(seconds[kind]) == pytest.approx(tool.call_seconds[0], rel=0.03)
        assert statistics.stdev(seconds[kind]) == pytest.approx(tool.call_seconds[1], rel=0.06)
        assert statistics.fmean(calls[kind]) == pytest.approx(tool.calls[0], rel=0.05)
        assert statistics.stdev(calls[kind]) == pytest.approx(tool.calls[1], rel=0.08)
        assert statistics.fmean(contexts[kind]) == pytest.approx(tool.context_tokens[0], rel=0.06)
        if kind != "ve":  # 28 calls that add 24 tokens each vary more than the table says
            spread = statistics.stdev(contexts[kind])
            assert spread == pytest.approx(tool.context_tokens[1], rel=0.12)


def test_the_mix_has_the_lengths_that_the_study_chose() -> None:
    sessions = made("mix", rate=10, seconds=1500).sessions
    decoded, returned = defaultdict(list), defaultdict(list)
    for session in sessions:
        decoded[session.kind] += [segment.decode_tokens for segment in session.segments]
        returned[session.kind] += [segment.given_tokens for segment in session.segments[1:]]
    for kind, tool in INFERCEPT_TOOLS.items():
        assert statistics.fmean(decoded[kind]) == pytest.approx(tool.decode_tokens, rel=0.03)
        assert statistics.fmean(returned[kind]) == pytest.approx(tool.returned_tokens, rel=0.03)


def test_balanced_means_one_of_each_in_every_six() -> None:
    kinds = [session.kind for session in made("mix:balanced=yes").sessions]
    for at in range(0, len(kinds) - 5, 6):
        assert sorted(kinds[at : at + 6]) == sorted(INFERCEPT_TOOLS)


@pytest.mark.parametrize(
    ("spec", "kinds"),
    [
        ("mix:tool=ve", {"ve"}),
        ("mix:tools=chatbot+image+tts", {"chatbot", "image", "tts"}),
        ("mix:tools=long", {"chatbot", "image", "tts"}),
        ("long", {"chatbot", "image", "tts"}),
        ("short", {"math", "qa", "ve"}),
        ("short:tools=ve+long", {"ve", "chatbot", "image", "tts"}),
    ],
)
def test_parts_of_the_mix(spec: str, kinds: set[str]) -> None:
    workload = made(spec)
    assert {session.kind for session in workload.sessions} == kinds
    assert {seg.tool for each in workload.sessions for seg in each.segments[:-1]} == kinds


def test_lamps_single_makes_one_call_each() -> None:
    sessions = made("lamps-single").sessions
    assert {len(session.segments) for session in sessions} == {2}
    assert {session.kind for session in sessions} == set(INFERCEPT_TOOLS)


def test_toolbench_has_the_moments_of_the_table() -> None:
    sessions = made("toolbench", rate=10, seconds=3000).sessions
    calls = [len(session.segments) - 1 for session in sessions]
    seconds = [pause for _, pause, _ in pauses(sessions)]
    assert statistics.fmean(calls) == pytest.approx(TOOLBENCH_CALLS[0], rel=0.04)
    assert statistics.stdev(calls) == pytest.approx(TOOLBENCH_CALLS[1], rel=0.06)
    assert statistics.fmean(seconds) == pytest.approx(TOOLBENCH_SECONDS[0], rel=0.04)
    assert statistics.stdev(seconds) == pytest.approx(
        TOOLBENCH_SECONDS[1], rel=0.25
    )  # a heavy tail
    prompts = [session.segments[0].given_tokens for session in sessions]
    assert statistics.fmean(prompts) == pytest.approx(TOOLBENCH_PROMPT[0], rel=0.02)
    decoded = [segment.decode_tokens for each in sessions for segment in each.segments]
    assert max(decoded) <= TOOLBENCH_MOST


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_past_future_is_uniform_and_a_closed_loop(name: str) -> None:
    workload, uniform = made(f"pastfuture-{name}:requests=4000"), DISTRIBUTIONS[name]
    requests = [session.segments[0] for session in workload.sessions]
    assert (workload.clients, len(requests)) == (60, 4000)
    assert {len(session.segments) for session in workload.sessions} == {1}
    for tokens, (least, most) in (
        ([each.given_tokens for each in requests], uniform.given),
        ([each.decode_tokens for each in requests], uniform.decoded),
    ):
        # Rounding by chance of whole numbers leaves them as they are.
        assert least <= min(tokens)
        assert max(tokens) <= most
        assert statistics.fmean(tokens) == pytest.approx((least + most) / 2, rel=0.03)
        assert statistics.stdev(tokens) == pytest.approx((most - least) / 12**0.5, rel=0.04)
    assert {each.most_tokens for each in requests} == {uniform.most}


def test_what_a_client_asks_for() -> None:
    exact = made("pastfuture-d1:most=exact").sessions
    assert all(each.segments[0].most_tokens == each.decode_tokens for each in exact)
    assert made("pastfuture-d1:most=0").sessions[0].segments[0].most_tokens == 0
    own = made("pastfuture-d1:most=9000,decode=0.5").sessions
    assert {each.segments[0].most_tokens for each in own} == {4500}
    assert [each.clients for each in (made("mix:clients=3,requests=7"), made("mix"))] == [3, 0]
    assert len(made("mix:clients=3,requests=7").sessions) == 7
    open_loop = made("pastfuture-d1:clients=0")
    assert open_loop.clients == 0
    assert len({each.arrival for each in open_loop.sessions}) == len(open_loop.sessions)


def test_chats_are_as_long_as_ssjf_takes_them() -> None:
    sessions = made("ssjf", rate=10, seconds=1500).sessions
    responses = sorted(session.decode_tokens for session in sessions)
    assert 1 <= responses[0] <= responses[-1] <= CHAT_MOST
    tail = responses[int(0.95 * len(responses))] / statistics.median(responses)
    assert 1.7 < tail < 20.5  # the range that SSJF finds, from model to model
    assert statistics.fmean(each.segments[0].given_tokens for each in sessions) == pytest.approx(
        69.5, rel=0.05
    )
    rounds = Counter(len(each.segments) for each in made("ssjf:rounds=2", seconds=1500).sessions)
    assert sum(n * count for n, count in rounds.items()) / rounds.total() == pytest.approx(2, 0.05)
    assert rounds[1] / rounds.total() == pytest.approx(0.5, rel=0.05)


def test_what_a_run_may_change() -> None:
    plain = made("mix:tool=chatbot", seconds=300).sessions
    long = made("mix:tool=chatbot,decode=2", seconds=300).sessions
    small = made("mix:tool=chatbot,tokens=0.25", seconds=300).sessions
    quick = made("mix:tool=chatbot,pause=0.5,longest=20", seconds=300).sessions
    totals = [sum(each.decode_tokens for each in drawn) for drawn in (plain, long, small)]
    assert totals[1] == pytest.approx(2 * totals[0], rel=0.01)
    assert totals[2] == pytest.approx(totals[0] / 4, rel=0.01)
    for one, other in zip(pauses(plain), pauses(quick), strict=True):
        assert other[1] == min(one[1], 20) / 2
    shared = made("mix:shared=300").sessions
    assert all(each.shared_name == each.kind for each in shared)
    assert {each.shared_tokens for each in shared} >= {300}
    assert all(each.shared_tokens <= each.segments[0].given_tokens for each in shared)
    assert {(each.shared_name, each.shared_tokens) for each in plain} == {("", 0)}


def test_what_does_not_fit_is_left_out() -> None:
    segments = [Segment(10, 5, "qa", 1.0, 7), Segment(3, 5, "qa", 2.0), Segment(3, 5)]
    assert fit(segments, 31) == segments
    assert fit(segments, 30) == [segments[0], Segment(3, 5)]
    assert fit(segments, 22) == [Segment(10, 5, most_tokens=7)]
    assert fit(segments, 14) == []
    assert reshaped(segments, Shape(tokens=0.5, pause=2, longest=1.5, context=11))[0] == Segment(
        5, 2, "qa", 2.0, 7
    )


def test_lognormal_numbers_have_their_moments() -> None:
    rng = random.Random(1)
    drawn = [lognormal_of(rng, (50.0, 20.0)) for _ in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(50, rel=0.01)
    assert statistics.stdev(drawn) == pytest.approx(20, rel=0.04)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("mux", "unknown name 'mux'; choose from: mix, short, long, lamps-single"),
        ("mix:tool=vr", "unknown tool 'vr'; choose from: all, short, long, math, qa, ve"),
        ("mix:tools=ve+", "unknown tools ''"),
        ("mix:tool=ve,tools=qa", "tool and tools mean the same"),
        ("mix:tol=ve", "unknown option 'tol'; choose from: arrivals, balanced, clients"),
        ("mix:cv=3", "unknown option 'cv'"),
        ("mix:tool", "an option must be key=value, got 'tool'"),
        ("mix:tool=ve,tool=qa", "tool is given twice"),
        ("mix:arrivals=poison", "unknown arrivals 'poison'; choose from: poisson, bursty, azure"),
        ("mix:arrivals=azure", "these arrivals need a file: give trace=PATH"),
        ("mix:arrivals=recorded", "only the workload record has recorded arrivals"),
        ("mix:decode=0", "decode must be a positive number, got 0"),
        ("mix:pause=-1", "pause must be a number >= 0, got '-1'"),
        ("mix:clients=1.5", "clients must be a whole number, got 1.5"),
        ("mix:balanced=maybe", "balanced must be yes or no, got 'maybe'"),
        ("mix:context=20", "no session fits a context of 20 tokens"),
        ("ssjf:rounds=0.5", "rounds must be a number >= 1, got '0.5'"),
        ("pastfuture-d1:most=all", "most must be a number"),
        ("sharegpt-o1", "it needs a data file (--data): ShareGPT-o1.json"),
        ("record", "it needs a data file (--data): what `caesura serve --records`"),
    ],
)
def test_what_is_wrong_is_said(spec: str, says: str) -> None:
    with pytest.raises(ValueError, match="workload ") as caught:
        make_workload(spec, 1.0, 10.0, 1)
    assert f"workload {spec!r}: " in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(("rate", "seconds"), [(0, 10), (-1, 10), (1, 0), (1, float("inf"))])
def test_a_rate_and_a_span_are_positive(rate: float, seconds: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        make_workload("mix", rate, seconds, 1)


def test_a_closed_loop_needs_neither() -> None:
    assert len(make_workload("mix:clients=2,requests=5", 0, 0, 1).sessions) == 5
