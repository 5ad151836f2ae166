"""A game's task: one of ALFWorld's six kinds, and a room for it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from alfworld.gen import constants

from caesura.tools.environment.alfworld.room import (
    LAMP,
    LAMP_PLACES,
    Place,
    Plan,
    Thing,
    choose_places,
    fill,
    holds,
    plan,
)

# Task type -> the property that a thing needs for it, and the place where it is done.
TREATED = {
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge"),
}
LOOK = "look_at_obj_in_light"
TWO = "pick_two_obj_and_place"
TRIES = 200


@dataclass(frozen=True, slots=True)
class Task:
    """A task in a room. `place_kind` is the thing's destination, or "" for a thing to look at."""

    type: str
    thing_kind: str
    place_kind: str
    plan_number: int
    places: tuple[Place, ...]
    things: tuple[Thing, ...]


def core(task: Task) -> Task:
    """Return the task in a room reduced to what it needs, which is quick to plan."""
    things = tuple(thing for thing in task.things if thing.kind in (task.thing_kind, LAMP))
    needed = [task.place_kind, TREATED.get(task.type, ("", ""))[1]]
    places = {thing.place for thing in things}
    for kind in filter(None, needed):
        places.add(next(place for place in task.places if place.kind == kind))
    return replace(task, things=things, places=tuple(sorted(places, key=lambda each: each.id)))


def draw(seed: str, types: Sequence[str], max_places: int) -> Task:
    """Return the task of a seed. Raises ValueError where no room suits any of the types."""
    rng = random.Random(seed)
    for _ in range(TRIES):
        task_type = rng.choice(list(types))
        kind_of_room = rng.choice(sorted(constants.GOALS_VALID[task_type]))
        found = plan(rng.choice(list(constants.SCENE_TYPE[kind_of_room])))
        goals = _goals(task_type, found)
        if goals:
            return _furnish(rng, task_type, found, rng.choice(goals), max_places)
    raise ValueError(f"no room has what the tasks {', '.join(types)} need")


def _goals(task_type: str, found: Plan) -> list[tuple[str, str]]:
    """Return the possible goals in this room: kinds of things, and each one's destination."""
    kinds, place_kinds = found.kinds, found.place_kinds
    if task_type == LOOK:
        if LAMP not in kinds or not any(holds(place, LAMP) for place in place_kinds):
            return []
        return [(kind, "") for kind in kinds if kind != LAMP and _homes(kind, "", place_kinds)]
    suits: set[str] = set(kinds) - {LAMP}
    treated_at = ""
    if task_type in TREATED:
        needed, treated_at = TREATED[task_type]
        suits &= constants.VAL_ACTION_OBJECTS[needed]
        if treated_at not in place_kinds:
            return []
    return [
        (kind, target)
        for kind in sorted(suits)
        for target in place_kinds
        if target != treated_at and holds(target, kind) and _homes(kind, target, place_kinds)
    ]


def _homes(kind: str, target: str, place_kinds: Sequence[str]) -> list[str]:
    """Return where things of a kind may lie at the start: anywhere but their destination."""
    return [place for place in place_kinds if place != target and holds(place, kind)]


def _furnish(
    rng: random.Random, task_type: str, found: Plan, goal: tuple[str, str], max_places: int
) -> Task:
    """Draw the places and the things for a goal."""
    kind, target = goal
    needed: list[Sequence[str]] = [_homes(kind, target, found.place_kinds)]
    if target:
        needed.append([target])
    if task_type in TREATED:
        needed.append([TREATED[task_type][1]])
    wanted = [(kind, target)] * (2 if task_type == TWO else 1)
    if rng.random() < 0.5:  # one more than needed, as often in a real room
        wanted.append((kind, target))
    if task_type == LOOK:
        needed.append(LAMP_PLACES)
        wanted.append((LAMP, ""))
    places = choose_places(rng, found, needed, max_places)
    things = fill(rng, found, places, wanted)
    return Task(task_type, kind, target, found.number, places, things)
