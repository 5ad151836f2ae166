"""ALFWorld's household games, in rooms that are drawn from a seed.

ALFWorld's package has the rules, the language, the goals and the floor plans. It takes the initial
positions of things from a download; here they are drawn from a seed instead. From the inside out:
a room with things in it, a task of one of ALFWorld's six kinds, the task as a planning problem in
PDDL, and games that a planner has found to be winnable, which are stored and played.

Only the process that plays imports this module: ALFWorld depends on packages under the GPL.
"""

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
from alfworld.gen import constants
from alfworld.gen.goal_library import gdict
from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH
from textworld.envs import PddlEnv

from caesura.tools.environment.child import View

LAMP = "DeskLamp"
LAMP_PLACES = ("Desk", "SideTable", "Dresser", "Shelf", "CoffeeTable", "DiningTable")
"""Where a lamp may stand: ALFWorld's tables omit it, since its lamps come with the room."""
MAX_THINGS = 20
LAYOUTS = Path(constants.__file__).parent / "layouts"
STATIC = frozenset(constants.RECEPTACLES - constants.MOVABLE_RECEPTACLES_SET)


@dataclass(frozen=True, slots=True)
class Place:
    """A receptacle: `id` is its name in the game's logic, `kind` is ALFWorld's, such as Cabinet."""

    id: str
    kind: str


@dataclass(frozen=True, slots=True)
class Thing:
    """An object and its place at the start."""

    id: str
    kind: str
    place: Place


@dataclass(frozen=True, slots=True)
class Plan:
    """A floor plan of AI2-THOR: its reachable receptacles, and the kinds of things in the room."""

    number: int
    places: tuple[Place, ...]
    kinds: tuple[str, ...]

    @property
    def place_kinds(self) -> tuple[str, ...]:
        """The kinds of its places, sorted."""
        return tuple(sorted({place.kind for place in self.places}))


def plan(number: int) -> Plan:
    """Return floor plan `number`, read from ALFWorld's package."""
    named = json.loads((LAYOUTS / f"FloorPlan{number}-openable.json").read_text())
    kinds = set(json.loads((LAYOUTS / f"FloorPlan{number}-objects.json").read_text()))
    places = [_place(name) for name in sorted(named)]
    # The file lists what a robot must stand in front of, and omits others such as stoves.
    unlisted = (kinds & STATIC) - {place.kind for place in places}
    places += [Place(f"{kind}_bar_0", kind) for kind in sorted(unlisted)]
    places = [place for place in places if place.kind in constants.VAL_RECEPTACLE_OBJECTS]
    things = kinds - STATIC
    return Plan(number, tuple(places), tuple(sorted(things)))


def holds(place_kind: str, thing_kind: str) -> bool:
    """Return whether things of one kind may lie in places of the other."""
    if thing_kind == LAMP:
        return place_kind in LAMP_PLACES
    return thing_kind in constants.VAL_RECEPTACLE_OBJECTS[place_kind]


def choose_places(
    rng: random.Random, found: Plan, needed: Iterable[Sequence[str]], limit: int
) -> tuple[Place, ...]:
    """Draw up to `limit` of the plan's places, with one of each of the `needed` groups of kinds."""
    chosen: list[Place] = []
    for kinds in needed:
        if not any(place.kind in kinds for place in chosen):
            chosen.append(rng.choice([place for place in found.places if place.kind in kinds]))
    rest = [place for place in found.places if place not in chosen]
    rng.shuffle(rest)
    chosen += rest[: max(0, limit - len(chosen))]
    return tuple(sorted(chosen, key=lambda place: place.id))


def fill(
    rng: random.Random, found: Plan, places: Sequence[Place], wanted: Sequence[tuple[str, str]]
) -> tuple[Thing, ...]:
    """Put things into places: first each of `wanted`, a kind and the place kind to avoid; then
    one or two of each other kind of the room."""
    things: list[Thing] = []

    def put(kind: str, keep_out: str = "") -> None:
        fits = [each for each in places if each.kind != keep_out and holds(each.kind, kind)]
        if fits:
            number = 1 + sum(thing.kind == kind for thing in things)
            things.append(Thing(f"{kind}_bar_{number}", kind, rng.choice(fits)))

    for kind, keep_out in wanted:
        put(kind, keep_out)
    others = [kind for kind in found.kinds if kind not in {kind for kind, _ in wanted}]
    rng.shuffle(others)
    for kind in others:
        for _ in range(rng.choice((1, 1, 2))):
            if len(things) < MAX_THINGS:
                put(kind)
    return tuple(things)


def _place(name: str) -> Place:
    """Return `Sink|-00.70|+00.93|-00.65|SinkBasin` as a place of kind SinkBasin."""
    kind = name.split("|")[0]
    if name.endswith("Basin"):
        kind = name.rpartition("|")[2]
    for sign, word in (("|", "_bar_"), ("-", "_minus_"), ("+", "_plus_"), (".", "_dot_")):
        name = name.replace(sign, word)
    return Place(name, kind)


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


FORMAT = 1
"""Increased when the same seeds give other games, so that stored files are not used."""
GAME_TRIES = 5
USEFUL_FIRST = ("move", "heat", "cool", "clean", "use", "open", "take", "slice", "go", "close")


class AlfworldGames:
    """ALFWorld's games by number; `options` are `Settings` as JSON, and the directory `data`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = {
            name: options[name] for name in ("seed", "task_types", "max_places", "max_steps")
        }
        self._directory = Path(options["data"])
        infos = textworld.EnvInfos(won=True, admissible_commands=True)
        self._env = AlfredDemangler(PddlEnv(infos))
        self._planner = PddlEnv(textworld.EnvInfos(policy_commands=True))

    def reset(self, number: int) -> View:
        """Start game `number`. Raises RuntimeError where no drawn game can be won."""
        path = self._directory / f"{self._digest(number)}.tw-pddl"
        with contextlib.suppress(OSError, ValueError):  # the file is missing or damaged
            return _view(self._begin(json.loads(path.read_text()), number))
        for attempt in range(GAME_TRIES):
            name = f"{self._options['seed']}/{number}/{attempt}"
            task = draw(name, self._options["task_types"], self._options["max_places"])
            found = game(task, random.Random(name))
            found["walkthrough"] = self._walkthrough(task, self._begin(found, number))
            found["solvable"] = found["walkthrough"] is not None
            if found["solvable"] and len(found["walkthrough"]) <= self._options["max_steps"]:
                _keep(path, found)
                return _view(self._begin(found, number))
        raise RuntimeError(f"none of the {GAME_TRIES} games drawn can be won")

    def step(self, action: str) -> View:
        """Perform what the game calls `action`; an unknown action has no effect."""
        words = " ".join(action.lower().split()).strip(" .!\"'`")
        state, _, _ = self._env.step(words)
        return _view(state)

    def _begin(self, found: dict[str, Any], number: int) -> Any:
        random.seed(number)  # TextWorld's grammar draws from the module's own generator
        np.random.seed(number)
        self._env.load(found)
        return self._env.reset()

    def _walkthrough(self, task: Task, state: Any) -> list[str] | None:
        """Return the commands that win the game just started, tried out in it; else None.

        Fast Downward plans in a room reduced to what the task needs: a full room may take minutes,
        and the plan is valid there too.
        """
        self._planner.load(game(core(task), random.Random(0)))
        names = {thing: info.name.strip() for thing, info in state["_entity_infos"].items()}
        plan = [
            " ".join(names.get(word, word) for word in command.split())
            for command in self._planner.reset()["policy_commands"]
        ]
        for command in plan:
            state, _, _ = self._env.step(command)
        return plan if state["won"] else None

    def _digest(self, number: int) -> str:
        said = json.dumps([FORMAT, self._options, number], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:24]


def _keep(path: Path, found: dict[str, Any]) -> None:
    """Write a game's file, whole or not at all; if that fails, the game is drawn again later."""
    part = path.with_name(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(found))
        part.replace(path)


def _view(state: Any) -> View:
    text = state["feedback"].removeprefix("-= Welcome to TextWorld, ALFRED! =-")
    return View(
        text="\n".join(line for line in text.splitlines() if line.strip()),
        actions=_in_order(state["admissible_commands"]),
        outcome="won" if state["won"] else None,
    )


def _in_order(commands: Sequence[str]) -> list[str]:
    """Return the commands, those that change something first."""
    ranks = {verb: rank for rank, verb in enumerate(USEFUL_FIRST)}
    return sorted(commands, key=lambda each: (ranks.get(each.split()[0], len(ranks)), each))
