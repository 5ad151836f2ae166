"""Engines that may sleep: their models come back to the devices where they were."""

from caesura.planning.plan import Placement
from caesura.planning.search.devices import assign, places_left

A, B, C = Placement("a"), Placement("b"), Placement("c")


def test_a_model_comes_back_to_the_devices_where_it_was() -> None:
    first = assign([A, B], {}, 2)
    assert first == {A: ((0,),), B: ((1,),)}
    second = assign([C], first, 2)
    left = places_left(first, second, {})
    assert left == {A: ((0,),), B: ((1,),)}
    assert assign([B], second, 2, asleep=left) == {B: ((1,),)}
    assert assign([B], second, 2) == {B: ((0,),)}, "without that it begins at the first device"


def test_what_runs_keeps_its_devices_before_what_sleeps_there() -> None:
    running = {C: ((1,),)}
    found = assign([B, C], running, 2, asleep={B: ((1,),)})
    assert found == {C: ((1,),), B: ((0,),)}


def test_a_place_of_another_size_is_none() -> None:
    wide = Placement("b", 1, 2)
    assert assign([wide], {}, 4, asleep={B: ((3,),)}) == {wide: ((0, 1),)}


def test_places_are_those_of_engines_that_are_gone_the_last_ones_first() -> None:
    two = Placement("a", 2)
    left = places_left({two: ((0,), (1,))}, {A: ((1,),)}, {B: ((1,),)})
    assert left == {A: ((0,),), B: ((1,),)}
    again = places_left({A: ((1,),)}, {B: ((1,),)}, left)
    assert again == {A: ((1,), (0,))}
