"""How many query tokens a step takes beside decodes."""

from dataclasses import replace
from typing import Any

import pytest

from caesura.intercept.kv.costs import PRIOR, SMALLEST_CHUNK

from .steering import CALL, evict, until_paused
from .world import World, make_scheduler

SATURATION = 20


def beside_a_decode(world: World, tokens: int = 200) -> int:
    """Let a prompt arrive while somebody decodes; return the tokens of the next step."""
    world.plain("decodes", range(30), "x" * 60)
    for _ in range(3):
        world.step()
    world.plain("prefills", range(1000, 1000 + tokens), "x")
    return world.step()


def world_of(measured: bool = False, **settings: Any) -> World:
    world = World(make_scheduler(**{"long_step_decodes": 0} | settings))
    world.scheduler.parts.costs.restart(replace(PRIOR, saturation=SATURATION))
    world.scheduler.parts.chunking.measured = measured
    return world


@pytest.mark.parametrize(
    ("chunk", "measured", "expected"),
    [
        (50, False, 50),
        (50, True, 50),
        (3, True, 1 + SMALLEST_CHUNK),  # a prefill goes on, however many decode
        ("vllm", True, 201),
        ("auto", False, 201),
        ("auto", True, 2 * SATURATION),
    ],
)
def test_steps_beside_decodes(chunk: int | str, measured: bool, expected: int) -> None:
    assert beside_a_decode(world_of(measured, chunk=chunk)) == expected


def test_a_prompt_that_one_step_can_compute_is_not_cut_beside_few_decodes() -> None:
    assert beside_a_decode(world_of(True, chunk="auto", long_step_decodes=1)) == 201
    assert beside_a_decode(world_of(True, chunk="auto", long_step_decodes=0)) == 2 * SATURATION


def test_a_returned_request_waits_for_its_result_only() -> None:
    world = world_of(True, chunk="auto")
    session = world.session("a", range(100), CALL, "r" * 30, "done")
    until_paused(world, session)
    world.answer(session)
    waiting = world.scheduler.parts.chunking.waiting_tokens()
    assert waiting < 100


def test_steps_without_decodes_are_as_long_as_vllms() -> None:
    world = world_of(True, chunk="auto")
    world.plain("prefills", range(300), "x")
    assert world.step() == 300


@pytest.mark.parametrize(("chunk", "expected"), [("auto", SATURATION), ("vllm", 220)])
def test_a_guess_holds_for_what_is_recomputed(chunk: str, expected: int) -> None:
    """InferCept, section 4.2; where nothing was measured, only there."""
    world = world_of(chunk=chunk)
    session = world.session("a", range(200), CALL, "r]", "done")
    until_paused(world, session)
    world.drop_kv("a")
    evict(world)
    world.plain("decodes", range(3000, 3030), "x" * 60)
    world.step()
    world.step()
    world.answer(session)
    tokens = world.step()
    assert tokens == expected


def test_a_calibration_that_comes_later_counts() -> None:
    world = world_of(chunk="auto")
    cost = replace(PRIOR, saturation=SATURATION).to_wire()
    world.scheduler.parts.commands.run({"command": "calibrate", "cost": cost})
    assert beside_a_decode(world) == 2 * SATURATION
