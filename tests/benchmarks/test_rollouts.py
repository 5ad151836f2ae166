"""Rollouts: groups share their prompts, every way asks for the same tokens, and rows are right."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.handling.workload import Segment
from benchmarks.rollouts.drive import WAYS, Steps
from benchmarks.rollouts.groups import FAST, SLOW, SMALL, Sample, needed_tokens
from benchmarks.rollouts.real import _rows
from benchmarks.rollouts.simulated import Cell, simulate

STEP = [
    Sample("a", "rollout", 0.0, (Segment(3, 2, FAST, 0.0), Segment(2, 4)), "g"),
    Sample("b", "rollout", 0.0, (Segment(3, 5),), "g"),
    Sample("c", "rollout", 0.0, (Segment(3, 3, SLOW, 0.0), Segment(1, 1)), "h"),
]


class Engine:
    """Says what it is forced to; a request lasts as many turns of the loop as it has tokens."""

    def __init__(self) -> None:
        self.asked: dict[str, list[int]] = {}
        self.log: list[str] = []

    async def generate(self, prompt: Any, params: Any, name: str) -> AsyncIterator[Any]:
        self.asked[name] = list(prompt["prompt_token_ids"])
        self.log.append(f"asked {name}")
        (last,) = params.stop_token_ids
        for index in range(params.min_tokens + 1):
            await asyncio.sleep(0)
            token = last if index == params.min_tokens else 16 + index
            output = SimpleNamespace(token_ids=[token])
            yield SimpleNamespace(outputs=[output], num_cached_tokens=0, kv_transfer_params=None)
        self.log.append(f"ended {name}")


async def stepped(way: str) -> tuple[Engine, Steps]:
    engine: Any = Engine()
    steps = Steps(engine, WAYS[way])
    await steps.step(STEP)
    return engine, steps


def test_a_group_shares_its_prompt_and_nothing_else() -> None:
    drawn = SMALL.draw(3, 8, seed=5)
    assert drawn == SMALL.draw(3, 8, seed=5) != SMALL.draw(3, 8, seed=6)
    prompts = {one.group: one.words()[0] for one in drawn}
    assert len(prompts) == 3 and len({tuple(words) for words in prompts.values()}) == 3
    for one in drawn:
        assert one.words()[0] == prompts[one.group]
        assert [len(words) for words in one.words()] == [s.given_tokens for s in one.segments]
    results = [tuple(words) for one in drawn for words in one.words()[1:]]
    assert len(set(results)) == len(results) > 24
    assert max(one.context_tokens for one in drawn) < 2048


def test_a_prompt_is_needed_once_for_its_group() -> None:
    # g: 3 given, 2 said, 2 given, 4 said less the last; and 5 said less the last. h: 3 + 3 + 1 + 0.
    assert needed_tokens(STEP) == 3 + (2 + 2 + 3) + 4 + 3 + (3 + 1 + 0)


@pytest.mark.parametrize("way", ["trl", "turns", "samples"])
async def test_every_way_asks_for_the_same_tokens(way: str) -> None:
    engine, steps = await stepped(way)
    assert {name: len(tokens) for name, tokens in engine.asked.items()} == {
        "a-0": 3,
        "b-0": 3,
        "c-0": 3,
        "a-1": 7,
        "c-1": 7,
    }
    assert engine.asked["a-0"] == engine.asked["b-0"] != engine.asked["c-0"]
    assert engine.asked["a-1"][:3] == engine.asked["a-0"]
    assert all(record.ended > 0 for record in steps.records) and len(steps.records) == 3


@pytest.mark.parametrize("way", ["trl", "turns"])
async def test_turn_by_turn_the_longest_sample_is_waited_for(way: str) -> None:
    log = (await stepped(way))[0].log
    assert log.index("ended b-0") < log.index("asked a-1")


async def test_by_itself_a_sample_waits_for_no_other() -> None:
    log = (await stepped("samples"))[0].log
    assert log.index("asked a-1") < log.index("ended b-0")


def test_rows_compare_the_same_steps() -> None:
    def run(way: str, seed: int, seconds: float, computed: int) -> dict[str, Any]:
        counts = {"needed": 90, "computed": computed, "half": seconds / 2, "others": 0.1}
        return {"way": way, "seed": seed, "prompts": 1, "samples": 8, "seconds": seconds, **counts}

    slow = [run("samples", 1, 8.0, 120), run("samples", 2, 4.0, 120)]
    fast = [run("sessions", 2, 2.0, 100), run("sessions", 1, 8.0, 90)]
    first, second = _rows({(8, "samples"): slow, (8, "sessions"): fast})
    assert first[2:] == ("1.50", "1", "25.0", "3.0", "6.0", "10%")
    assert second[2:] == ("2.50", "1.000, 2.000", "5.0", "2.5", "5.0", "10%")


def test_simulated_steps_end_and_compute_again_only_what_was_lost() -> None:
    stock = simulate(Cell("llama-3.1-8b-h100", "stock", 2, 4, 1))
    ours = simulate(Cell("llama-3.1-8b-h100", "caesura", 2, 4, 1))
    assert ours.again == 0 <= stock.again < 0.1  # there is room for all
    assert 0 < ours.half < ours.seconds and ours.rate == 8 / ours.seconds
