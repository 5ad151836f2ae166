"""When the sessions of the simulator's workloads arrive: at the rate, and as bursty as asked."""

import itertools
import random
import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from caesura.simulator.workload.arrivals import (
    MOONCAKE_GRAIN,
    Client,
    azure_stamps,
    bursty,
    mooncake_stamps,
    poisson,
    read_windows,
    replayed,
    windowed,
)
from caesura.simulator.workload.names import make_workload

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
AZURE_CODE, AZURE_CONV = DATA / "azure_code_2023.csv.gz", DATA / "azure_conv_2023.csv.gz"
MOONCAKE = DATA / "mooncake_conversation.jsonl.gz"
SERVEGEN = DATA / "servegen_deepseek_r1.csv.gz"


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def cv(values: list[float]) -> float:
    return statistics.pstdev(values) / statistics.fmean(values)


def test_poisson_arrivals_have_their_rate_and_no_memory() -> None:
    found = gaps(list(itertools.islice(poisson(random.Random(1), 4.0), 20_000)))
    assert statistics.fmean(found) == pytest.approx(0.25, rel=0.02)
    assert cv(found) == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize("asked", [0.5, 2.0, 4.0])
def test_bursty_arrivals_have_their_coefficient_of_variation(asked: float) -> None:
    found = gaps(list(itertools.islice(bursty(random.Random(1), 4.0, asked), 60_000)))
    assert statistics.fmean(found) == pytest.approx(0.25, rel=0.04)
    assert cv(found) == pytest.approx(asked, rel=0.05)


def test_bursty_arrivals_begin_in_equilibrium() -> None:
    """However short a run is, it has as many arrivals in the mean as the rate says."""
    counts = [
        sum(1 for _ in itertools.takewhile(lambda t: t < 5, bursty(random.Random(i), 2.0, 4.0)))
        for i in range(4000)
    ]
    # An arrival process that began with an arrival would have (cv² - 1) / 2 = 7.5 more.
    assert statistics.fmean(counts) == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("rate", [0.5, 3.0])
def test_a_trace_is_stretched_to_the_rate(rate: float) -> None:
    stamps = azure_stamps(AZURE_CODE)
    times = list(replayed(random.Random(1), rate, 600.0, stamps))
    assert len(times) == rate * 600
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] < 600
    assert list(replayed(random.Random(1), rate, 600.0, stamps)) == times
    assert list(replayed(random.Random(2), rate, 600.0, stamps)) != times


def test_a_trace_keeps_its_bursts() -> None:
    stamps = azure_stamps(AZURE_CODE)
    whole = list(replayed(random.Random(1), 1.0, len(stamps) - 1.0, stamps))
    assert cv(gaps(whole)) == pytest.approx(cv(gaps(stamps)), rel=0.01)
    assert cv(gaps(whole)) > 5
    assert cv(gaps(azure_stamps(AZURE_CONV))) == pytest.approx(1.1, abs=0.1)


def test_a_trace_begins_again_at_its_end() -> None:
    times = list(replayed(random.Random(1), 1.0, 9.0, [0.0, 1.0, 3.0, 6.0]))
    # 9 gaps are three times round a trace of three: the pattern recurs every 3 seconds.
    assert [time + 3 for time in times[:6]] == pytest.approx(times[3:])
    assert sorted(gaps(times)[:3]) == pytest.approx([0.5, 1.0, 1.5])


def test_stamps_that_are_the_same_are_spread() -> None:
    stamps = mooncake_stamps(MOONCAKE)
    assert len(set(stamps)) < len(stamps) / 5
    times = list(replayed(random.Random(1), 2.0, 1000.0, stamps, MOONCAKE_GRAIN))
    assert len(times) == 2000
    assert cv(gaps(times)) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rate_windows_are_scaled_to_the_rate(seed: int) -> None:
    windows = read_windows(SERVEGEN)
    assert len(windows) == 144
    counts = [
        len(list(windowed(random.Random(f"{seed} {i}"), 0.5, 1800.0, windows))) for i in range(40)
    ]
    assert statistics.fmean(counts) == pytest.approx(900, rel=0.08)
    times = list(windowed(random.Random(seed), 5.0, 720.0, windows, window_seconds=5.0))
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 720


def test_rate_windows_rise_and_fall_as_recorded() -> None:
    windows = [[Client(3.0, "Gamma", 1.0)], [Client(1.0, "Gamma", 1.0)]]
    counts = {0: 0, 1: 0}
    for seed in range(50):
        rng = random.Random(seed)
        first = 0 if random.Random(seed).randrange(2) == 0 else 1
        for now in windowed(rng, 4.0, 20.0, windows, window_seconds=10.0):
            counts[(first + int(now // 10)) % 2] += 1
    assert counts[0] / counts[1] == pytest.approx(3, rel=0.1)
    assert sum(counts.values()) == pytest.approx(50 * 80, rel=0.1)


@pytest.mark.parametrize("pattern", ["Gamma", "Weibull"])
@pytest.mark.parametrize("shape", [0.3, 1.0, 3.0])
def test_clients_have_gaps_of_mean_one_and_begin_in_equilibrium(pattern: str, shape: float) -> None:
    rng, client = random.Random(1), Client(1.0, pattern, shape)
    drawn = [client.gap(rng) for _ in range(200_000)]
    mean_square = statistics.fmean(gap * gap for gap in drawn)
    assert statistics.fmean(drawn) == pytest.approx(1, rel=0.05)
    # The mean time to the next arrival seen from a random moment: E[X²] / 2 E[X].
    first = statistics.fmean(client.first(rng) for _ in range(200_000))
    assert first == pytest.approx(mean_square / 2, rel=0.12)


@pytest.mark.parametrize(
    ("spec", "trace"),
    [("azure", AZURE_CONV), ("mooncake", MOONCAKE), ("servegen", SERVEGEN)],
)
def test_a_workload_takes_its_arrivals_from_a_trace(spec: str, trace: Path) -> None:
    by_data = make_workload(f"mix:arrivals={spec}", 1.0, 300.0, 7, trace)
    by_option = make_workload(f"mix:arrivals={spec},trace={trace}", 1.0, 300.0, 7)
    plain = make_workload("mix", 1.0, 300.0, 7)
    assert by_data.sessions == by_option.sessions
    assert len(by_data.sessions) == pytest.approx(300, rel=0.25)
    assert all(0 <= session.arrival < 300 for session in by_data.sessions)
    for one, other in zip(by_data.sessions, plain.sessions, strict=False):
        assert one.segments == other.segments
        assert one.arrival != other.arrival
    runs = DATA / "agent_runs.jsonl.gz"
    replay = make_workload(f"replay:arrivals={spec},trace={trace}", 1.0, 300.0, 7, runs)
    assert [each.arrival for each in replay.sessions] == [each.arrival for each in by_data.sessions]
    with pytest.raises(ValueError, match="need a file"):
        make_workload(f"replay:arrivals={spec}", 1.0, 300.0, 7, runs)


@pytest.mark.parametrize(
    ("process", "text", "says"),
    [
        ("azure", "", ":1: the file is empty"),
        ("azure", "TIME\n1\n", ":1: no column TIMESTAMP; the file has ['TIME']"),
        ("azure", "TIMESTAMP,A\n2023-11-16 18:17:03,1\nnoon,2\n", ":3: TIMESTAMP: "),
        ("azure", "TIMESTAMP,A\n2023-11-16 18:17:03\n", ":2: 1 fields under 2 columns"),
        ("azure", "TIMESTAMP\n2023-11-16 18:17:03\n", ": a trace needs at least two arrivals"),
        ("mooncake", '{"timestamp": 0}\n\n{"timestamp": 1\n', ":3: not JSON: "),
        ("mooncake", "[1]\n", ":1: not a JSON object"),
        ("mooncake", '{"timestamp": 0}\n{"timestamp": "now"}\n', ":2: timestamp must be a number"),
        ("mooncake", '{"timestamp": true}\n', ":1: timestamp must be a number"),
        ("servegen", "client,window_start_s,rate_rps,pattern\n", ":1: no column param1"),
        (
            "servegen",
            "{}0,0,1,Pareto,1\n",
            ":2: unknown pattern 'Pareto'; choose from: Gamma, Weibull",
        ),
        ("servegen", "{}0,0,0,,0\n0,600,-1,Gamma,1\n", ":3: rate_rps must be a number >= 0"),
        ("servegen", "{}0,0,1,Gamma,0\n", ":2: param1 must be a number >= 0.001, got '0'"),
        ("servegen", "{}0,0,0,,0\n", ": no window has a rate"),
    ],
)
def test_a_bad_trace_is_named_with_its_line(
    tmp_path: Path, process: str, text: str, says: str
) -> None:
    path = tmp_path / "trace"
    path.write_text(text.replace("{}", "client,window_start_s,rate_rps,pattern,param1\n"))
    with pytest.raises(ValueError, match="workload ") as caught:
        make_workload(f"mix:arrivals={process}", 1.0, 10.0, 1, path)
    assert f"{path}{says}" in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "trace.gz"
    broken.write_bytes(AZURE_CODE.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"trace.gz:\d+: cannot be read"):
        make_workload("mix:arrivals=azure", 1.0, 10.0, 1, broken)
    with pytest.raises(ValueError, match=r"nothing.csv: there is no such file"):
        make_workload("mix:arrivals=azure", 1.0, 10.0, 1, tmp_path / "nothing.csv")
