"""A task as a planning problem in PDDL, and as a game that TextWorld loads."""

import random
from pathlib import Path
from typing import Any

from alfworld.gen import constants
from alfworld.gen.goal_library import gdict
from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

from caesura.tools.environment.alfworld.room import LAMP, Place, Thing
from caesura.tools.environment.alfworld.task import Task

# ALFWorld's property of a kind of things -> the predicate of its domain.
PROPERTIES = {
    "Cleanable": "cleanable",
    "Heatable": "heatable",
    "Coolable": "coolable",
    "Sliceable": "sliceable",
}


def game(task: Task, rng: random.Random) -> dict[str, Any]:
    """Return a game file as `alfworld-generate` writes it; `rng` chooses the goal's wording."""
    wording = rng.choice(gdict[task.type]["templates"]).format(
        obj=task.thing_kind.lower(), recep=task.place_kind.lower(), toggle=LAMP.lower()
    )
    grammar = Path(ALFRED_TWL2_PATH).read_text()
    return {
        "pddl_domain": Path(ALFRED_PDDL_PATH).read_text(),
        "grammar": grammar.replace("UNKNOWN GOAL", wording),
        "pddl_problem": problem(task),
    }


def problem(task: Task) -> str:
    """Return the problem's text: the objects, their initial state, and the goal."""
    place_kinds = sorted({place.kind for place in task.places})
    thing_kinds = sorted({thing.kind for thing in task.things})
    objects = ["agent1 - agent", "loc_bar_start - location"]
    objects += [f"{kind}Type - rtype" for kind in _all_place_kinds(place_kinds)]
    objects += [f"{kind}Type - otype" for kind in _all_thing_kinds(thing_kinds)]
    objects += [f"{place.id} - receptacle" for place in task.places]
    objects += [f"loc_bar_{place.id} - location" for place in task.places]
    objects += [f"{thing.id} - object" for thing in task.things]
    start = ["(= (total-cost) 0)", "(atLocation agent1 loc_bar_start)"]
    for place in task.places:
        start += _place_facts(place)
    for thing in task.things:
        start += _thing_facts(thing)
    for place_kind in place_kinds:
        allowed = constants.VAL_RECEPTACLE_OBJECTS[place_kind]
        start += [f"(canContain {place_kind}Type {k}Type)" for k in thing_kinds if k in allowed]
    lines = "\n    ".join
    return (
        "(define (problem drawn)\n  (:domain alfred)\n"
        f"  (:objects\n    {lines(objects)}\n  )\n  (:init\n    {lines(start)}\n  )\n"
        f"{goal(task)}\n  (:metric minimize (total-cost))\n)\n"
    )


def goal(task: Task) -> str:
    """Return the goal, from ALFWorld's goal library."""
    text: str = gdict[task.type]["pddl"].format(
        obj=task.thing_kind, recep=task.place_kind, toggle=LAMP
    )
    # The library's text also closes the whole problem, and has "#" for PDDL's "-".
    return text.strip().removesuffix(")").replace("#", "-")


def _all_place_kinds(kinds: list[str]) -> list[str]:
    """Return the kinds with those that the domain itself names, even if absent in the room."""
    return sorted({*kinds, "SinkBasin", "Microwave", "Fridge"})


def _all_thing_kinds(kinds: list[str]) -> list[str]:
    return sorted({*kinds, "Knife", "ButterKnife"})


def _place_facts(place: Place) -> list[str]:
    facts = [
        f"(receptacleType {place.id} {place.kind}Type)",
        f"(receptacleAtLocation {place.id} loc_bar_{place.id})",
    ]
    if place.kind in constants.OPENABLE_CLASS_SET:
        facts.append(f"(openable {place.id})")
    return facts


def _thing_facts(thing: Thing) -> list[str]:
    facts = [
        f"(objectType {thing.id} {thing.kind}Type)",
        f"(inReceptacle {thing.id} {thing.place.id})",
        f"(objectAtLocation {thing.id} loc_bar_{thing.place.id})",
    ]
    if thing.kind == LAMP:
        return [*facts, f"(toggleable {thing.id})"]
    facts.append(f"(pickupable {thing.id})")
    for kinds, predicate in PROPERTIES.items():
        if thing.kind in constants.VAL_ACTION_OBJECTS[kinds]:
            facts.append(f"({predicate} {thing.id})")
    return facts
