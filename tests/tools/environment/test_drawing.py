import random

import pytest

from caesura.tools.environment.tool import TASK_TYPES
from tests.tools.environment.playing import need_alfworld

need_alfworld()

from caesura.tools.environment import alfworld  # noqa: E402

SEEDS = range(40)


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_a_room_has_what_its_task_needs_and_the_task_is_not_done_yet(task_type):
    for seed in SEEDS:
        drawn = alfworld.draw(f"{seed}", [task_type], 8)
        assert drawn.type == task_type
        kinds = {place.kind for place in drawn.places}
        things = [thing for thing in drawn.things if thing.kind == drawn.thing_kind]
        assert len(things) >= (2 if task_type == alfworld.TWO else 1)
        assert all(thing.place.kind != drawn.place_kind for thing in things)
        if task_type == alfworld.LOOK:
            assert any(thing.kind == alfworld.LAMP for thing in drawn.things)
        else:
            assert drawn.place_kind in kinds
        if task_type in alfworld.TREATED:
            assert alfworld.TREATED[task_type][1] in kinds


@pytest.mark.parametrize("max_places", [4, 8, 60])
def test_rooms_are_bounded_and_things_lie_where_they_may(max_places):
    for seed in SEEDS:
        drawn = alfworld.draw(f"{seed}", TASK_TYPES, max_places)
        assert len(drawn.places) <= max_places
        assert len(drawn.things) <= alfworld.MAX_THINGS
        assert len({each.id for each in (*drawn.places, *drawn.things)}) == len(drawn.places) + len(
            drawn.things
        )
        for thing in drawn.things:
            assert thing.place in drawn.places
            assert alfworld.holds(thing.place.kind, thing.kind)


def test_the_core_of_a_task_is_small_and_has_what_it_takes():
    for seed in SEEDS:
        drawn = alfworld.draw(f"{seed}", TASK_TYPES, 60)
        core = alfworld.core(drawn)
        assert set(core.places) <= set(drawn.places) and len(core.places) <= 6
        assert set(core.things) <= set(drawn.things)
        assert all(thing.place in core.places for thing in core.things)
        assert {thing.id for thing in drawn.things if thing.kind == drawn.thing_kind} <= {
            thing.id for thing in core.things
        }


def test_equal_seeds_give_equal_games_and_others_do_not():
    def text(seed: str) -> str:
        return alfworld.game(alfworld.draw(seed, TASK_TYPES, 8), random.Random(seed))[
            "pddl_problem"
        ]

    assert text("a") == text("a")
    assert len({text(str(seed)) for seed in SEEDS}) == len(SEEDS)


def test_every_floor_plan_can_be_read():
    for numbers in alfworld.constants.SCENE_TYPE.values():
        for number in numbers:
            found = alfworld.plan(number)
            assert found.places and found.kinds
            assert not set(found.kinds) & set(found.place_kinds)
            assert len({place.id.lower() for place in found.places}) == len(found.places)
