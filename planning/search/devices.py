"""Which devices hold which model, with the least reloading (SamuLLM, section 4.3)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from caesura.planning.plan import Placement
from caesura.planning.search.problem import PlanError
from caesura.planning.stage_times import engine_like

Slots = tuple[tuple[int, ...], ...]
"""The devices of each replica of a placement."""


@dataclass(slots=True)
class _Block:
    """Devices that lie together: one replica, or the replicas that share devices with it."""

    owner: str
    size: int
    cost: float
    now: tuple[int, ...] = ()
    asleep: tuple[int, ...] = ()
    devices: tuple[int, ...] = field(default=())


def assign(
    placements: Sequence[Placement],
    now: Mapping[Placement, Slots],
    devices: int,
    reload_seconds: Callable[[Placement], float] | None = None,
    asleep: Mapping[Placement, Slots] | None = None,
) -> dict[Placement, Slots]:
    """Return the devices of each replica, numbered from 0.

    A replica whose model ran with the same tensor parallelism stays where it is, if it can. The
    devices of a replica begin at a multiple of their number, so that two are an NVLink pair where
    links join devices 0 and 1, 2 and 3, and so on. Where a large replica needs a place, it takes
    the one whose models cost the fewest `reload_seconds` (by default their devices) to move. A
    replica that is not there goes where it was before, by `asleep`, if that is free: its engine may
    sleep there. Raises `PlanError` if the devices do not suffice.
    """
    cost = reload_seconds or (lambda placement: float(placement.tensor_parallel))
    groups = _groups(placements)
    blocks = [block for name in groups for block in _blocks(name, groups[name], now, cost)]
    _remember(blocks, groups, asleep or {})
    # Large blocks first: what is aligned always fits. Among equals those stay that are there.
    order = sorted(
        blocks, key=lambda block: (-block.size, not block.now, not block.asleep, -block.cost)
    )
    free = set(range(devices))
    for number, block in enumerate(order):
        block.devices = _place(block, order[number + 1 :], free, devices)
        free -= set(block.devices)
    return {
        one: _slots(one, [block.devices for block in blocks if block.owner == name])
        for name, members in groups.items()
        for one in members
    }


def _groups(placements: Sequence[Placement]) -> dict[str, list[Placement]]:
    """Return the placements by the devices that they share; others are groups of their own."""
    groups: dict[str, list[Placement]] = {}
    for one in placements:
        groups.setdefault(f"shared {one.shares}" if one.shares else f"own {one}", []).append(one)
    return groups


def _blocks(
    name: str,
    members: Sequence[Placement],
    now: Mapping[Placement, Slots],
    cost: Callable[[Placement], float],
) -> list[_Block]:
    size = max(one.tensor_parallel for one in members)
    count = -(-max(one.devices for one in members) // size)
    blocks = [_Block(name, size, sum(cost(one) for one in members)) for _ in range(count)]
    # Devices where the first member runs; a group moves as a whole.
    there = [slot for old, slots in now.items() if _continues(old, members[0]) for slot in slots]
    for block, slot in zip(blocks, there, strict=False):
        if len(slot) == size:
            block.now = slot
    return blocks


def _remember(
    blocks: Sequence[_Block],
    groups: Mapping[str, Sequence[Placement]],
    asleep: Mapping[Placement, Slots],
) -> None:
    """Let blocks without a place know where engines of their model were."""
    for name, members in groups.items():
        left = [
            slot for old, slots in asleep.items() if _continues(old, members[0]) for slot in slots
        ]
        for block in blocks:
            if block.owner == name and not block.now and left:
                block.asleep = left.pop(0)
                if len(block.asleep) != block.size:
                    block.asleep = ()


def places_left(
    before: Mapping[Placement, Slots],
    now: Mapping[Placement, Slots],
    asleep: Mapping[Placement, Slots],
) -> dict[Placement, Slots]:
    """Return where engines were that are not placed any more, the last ones first."""
    taken = {(engine_like(one), slot) for one, slots in now.items() for slot in slots}
    found: dict[Placement, list[tuple[int, ...]]] = {}
    for places in (before, asleep):
        for one, slots in places.items():
            like = engine_like(one)
            for slot in slots:
                if (like, slot) not in taken and slot not in found.setdefault(like, []):
                    found[like].append(slot)
    return {one: tuple(slots) for one, slots in found.items() if slots}


def renumbered(
    places: Mapping[Placement, Slots], numbers: Mapping[int, int]
) -> dict[Placement, Slots]:
    """Return places by other numbers of devices, without replicas on devices that have none."""
    return {
        one: kept
        for one, slots in places.items()
        if (kept := tuple(mapped(slot, numbers) for slot in slots if set(slot) <= set(numbers)))
    }


def mapped(devices: Sequence[int], numbers: Mapping[int, int]) -> tuple[int, ...]:
    """Return other numbers of devices, all of which have one."""
    return tuple(numbers[device] for device in devices)


def _continues(old: Placement, new: Placement) -> bool:
    """Return whether a replica of the old placement can be one of the new placement."""
    return (old.model, old.tensor_parallel, old.kv_bytes) == (
        new.model,
        new.tensor_parallel,
        new.kv_bytes,
    )


def _place(block: _Block, later: Sequence[_Block], free: set[int], devices: int) -> tuple[int, ...]:
    for there in (block.now, block.asleep):
        if there and free.issuperset(there):
            return there
    starts = range(0, devices - block.size + 1, block.size)
    slots = [tuple(range(start, start + block.size)) for start in starts]
    slots = [slot for slot in slots if free.issuperset(slot)]
    if not slots:
        if len(free) < block.size:
            raise PlanError(
                f"placements need {block.size} devices more, but {len(free)} of {devices} are free"
            )
        return tuple(sorted(free)[: block.size])  # A size that does not divide the others.
    return min(slots, key=lambda slot: _moved(slot, later))


def _moved(slot: tuple[int, ...], later: Sequence[_Block]) -> float:
    """Return what it costs to move the blocks that run in the slot."""
    return sum(block.cost for block in later if set(block.now) & set(slot))


def _slots(placement: Placement, blocks: Sequence[tuple[int, ...]]) -> Slots:
    devices = [device for block in blocks for device in block]
    size = placement.tensor_parallel
    return tuple(
        tuple(devices[number * size : (number + 1) * size]) for number in range(placement.replicas)
    )
