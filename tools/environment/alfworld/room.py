"""A room at the start of a game: places, and the things in them, drawn from a seed."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from alfworld.gen import constants

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
