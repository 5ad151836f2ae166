"""Models that attend to a window alone: what it has passed is given up, the rest as a whole."""

from typing import Any

import pytest

from caesura.intercept.calls.formats import resolve

from .retaining import call, ends_well, first_chunk, follow_up, until_finished
from .steering import CALL, IN_EVERY_MODE, finishes, until_paused
from .world import Session, World, make_scheduler

BLOCK, WINDOW = 16, 40
ANSWERS = [" yes", " it is" * 7, " it is so" * 11]
"""Texts that end within the prompt's last block, within the window behind it, and beyond it."""


def question(world: World, behind: Session, name: str) -> Session:
    """Go on behind an answer: all that was said of it, and a new question."""
    return world.plain(name, [*behind.prompt, *behind.parts[0], *b"And now?"], " well")


@IN_EVERY_MODE
def test_blocks_of_a_window_are_released_together(asynchronous: bool, depth: int) -> None:
    """Without its last block, the others of a window would be of no use."""
    world = World(make_scheduler(asynchronous=asynchronous, layout="window"), depth)
    session = world.session("a", range(100), CALL, " 3]", " done")
    until_paused(world, session)
    manager = world.parts.manager
    paused = manager.paused_kvs["a"]
    blocks = manager.paused_kvs.blocks.of(paused)
    assert blocks[0].is_null
    held = paused.resident
    assert held < len(blocks)
    assert manager.release(paused, 1, world.now, "decided") == held
    assert not paused.resident
    finishes(world)


@IN_EVERY_MODE
@pytest.mark.parametrize("layout", ["window", "window+full", "window+window+full"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_question_behind_an_answer_computes_what_is_new(
    asynchronous: bool, depth: int, layout: str, answer: str
) -> None:
    """As vLLM's engine has it, windows are cached where a prompt ends; here where an answer does.

    The first question goes on behind an answer, the second one behind an answer to a tool's result.
    """
    options: Any = {"asynchronous": asynchronous, "layout": layout, "window": WINDOW}
    formats = resolve(("hermes",), ())
    world = World(make_scheduler(**options, blocks=200, formats=formats), depth)
    asked = world.plain("a", range(100), answer)
    until_finished(world, asked)
    called = call(world, "c", 300)
    told = follow_up(world, called, "d")
    told.parts[0][:0] = answer.encode()
    until_finished(world, told)
    for number, behind in enumerate((asked, told)):
        said = len(behind.prompt) + len(behind.parts[0])
        found = first_chunk(world, question(world, behind, f"q{number}"))
        assert found == (said - 1) // BLOCK * BLOCK
    ends_well(world)
