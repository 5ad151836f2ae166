"""The LAMPS paper's worked example: its four averages, and what they rest on."""

import pytest

from benchmarks.papers import lamps_example as example
from benchmarks.papers.lamps_example import POLICIES, TABLE, by_memory, completions, schedule
from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.handling import least, wastes


def average(units: str) -> float:
    done = completions(units)
    return sum(done) / len(done)


@pytest.mark.parametrize(
    ("name", "units", "done"),
    [
        ("FCFS", "111112.133.3.22", [8, 15, 12]),
        ("SJF by output length", "233131111..122", [12, 14, 5]),
        ("SJF by total length", "331311112.1.....22", [11, 18, 4]),
        ("memory over time", "332311111..122", [12, 14, 4]),
    ],
)
def test_the_averages_are_the_papers(name: str, units: str, done: list[int]) -> None:
    rank, paper = POLICIES[name]
    assert schedule(rank) == units
    assert completions(units) == done
    assert int(average(units) * 100) / 100 == paper  # the paper cuts 11.666... off


def test_every_token_takes_its_unit_and_no_call_is_cut_short() -> None:
    for rank, _ in POLICIES.values():
        units = schedule(rank)
        recomputed = {1: 0, 2: 1, 3: 0}
        for one in TABLE:
            own = [at for at, digit in enumerate(units) if digit == str(one.number)]
            assert len(own) == one.length + recomputed[one.number]
            assert own[one.call_after] - own[one.call_after - 1] > one.call_units


def test_the_paper_needs_what_others_hold_in_vain() -> None:
    alone = schedule(lambda one: by_memory(one, others=False))
    assert alone == schedule(lambda one: by_memory(one, other_tokens=0))
    assert average(alone) == pytest.approx(29 / 3)
    paper = schedule(POLICIES["memory over time"][0])
    assert {schedule(lambda one, c=c: by_memory(one, c)) for c in range(2, 22)} == {paper}
    assert schedule(lambda one: by_memory(one, 1)) != paper
    assert schedule(lambda one: by_memory(one, 22)) != paper


def test_the_memory_budget_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "BUDGET", 100)
    assert schedule(POLICIES["FCFS"][0]) == "111112313.3..22"  # R3 fits beside R1's call


def test_no_link_gives_the_handlings_of_the_table() -> None:
    def handlings(number: int, rate: float) -> set[str]:
        one = TABLE[number - 1]
        cost = CostModel(0.0, 1.0, 1.0, 0.0, 1, rate, rate)
        return {
            least(wastes(one.call_after, one.call_units, other, True, cost)) for other in range(30)
        }

    rates = [2 ** (exponent / 4) for exponent in range(-20, 41)]
    discards = [rate for rate in rates if "discard" in handlings(2, rate)]
    swaps = [rate for rate in rates if "swap" in handlings(3, rate)]
    assert discards and swaps and max(discards) < min(swaps)


def test_it_prints_them_beside_the_papers(capsys: pytest.CaptureFixture[str]) -> None:
    example.main([])
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[2:6]]
    assert [[cell.strip() for cell in row[3:1:-1]] for row in rows] == [
        ["11.67", "11.66"],
        ["10.33", "10.33"],
        ["11.00", "11.00"],
        ["10.00", "10.00"],
    ]
