"""Held blocks are charged as far as others want them, no less and no more."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.kv.pressure import Charge, Pressure, Reading, share

BLOCKS = st.integers(0, 60)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["lack", "begin", "change", "result", "end"]),
        st.floats(0, 5),
        st.integers(0, 5),
        BLOCKS,
        st.floats(0, 200),
    ),
    max_size=40,
)


@dataclass
class World:
    """Plays events, and integrates min(lacked, held) beside them."""

    pressure: Pressure = field(default_factory=Pressure)
    now: float = 0.0
    lacked: float = 0.0
    free: int = 0
    caused: float = 0.0
    charges: list[Charge] = field(default_factory=list)
    ended: list[Charge] = field(default_factory=list)

    def play(self, events: list[Any]) -> "World":
        for event in events:
            self.event(*event)
        for charge in list(self.charges):
            self.end(charge)
        return self

    def event(self, what: str, passed: float, which: int, blocks: int, lacked: float) -> None:
        self.now += passed
        self.caused += passed * min(self.lacked, sum(one.held for one in self.charges))
        if what == "lack":
            self.lacked, self.free = lacked if blocks > 30 else 0.0, blocks
            self.pressure.lack(self.now, self.lacked, self.free)
        elif what == "begin":
            self.charges.append(self.pressure.begin(self.now, blocks))
        elif self.charges:
            charge = self.charges[which % len(self.charges)]
            if what == "change":
                self.pressure.change(charge, self.now, blocks)
            elif what == "result":
                self.pressure.result(charge, self.now)
            else:
                self.end(charge)

    def end(self, charge: Charge) -> None:
        self.pressure.end(charge, self.now)
        self.charges.remove(charge)
        self.ended.append(charge)


@given(EVENTS)
def test_charges_add_up_to_what_paused_memory_kept_from_others(events: list[Any]) -> None:
    world = World().play(events)
    total = sum(charge.cost for charge in world.ended)
    assert total == pytest.approx(world.caused, rel=1e-9, abs=1e-9)
    assert len(world.pressure) == 0


@given(EVENTS)
def test_nothing_is_negative_and_no_second_counts_twice(events: list[Any]) -> None:
    world = World().play(events)
    for charge in world.ended:
        assert charge.cost >= 0
        for part in (charge.wanted, charge.queued):
            assert 0 <= part.held <= part.wanted * (1 + 1e-9) + 1e-9
            assert 0 <= part.kept <= part.wanted * (1 + 1e-9) + 1e-9
        assert charge.wanted.wanted + charge.queued.wanted <= world.now * (1 + 1e-9)


@given(EVENTS)
def test_where_nobody_lacks_blocks_holding_costs_nothing(events: list[Any]) -> None:
    free = [("lack", passed, which, 30, 0.0) if what == "lack" else (what, passed, which, n, 0.0)
            for what, passed, which, n, _ in events]  # fmt: skip
    world = World().play(free)
    assert all(charge.cost == 0 for charge in world.ended)


@given(EVENTS)
def test_with_blocks_free_for_all_that_was_given_up_nobody_wants_any(events: list[Any]) -> None:
    pressure = Pressure()
    pressure.lack(0.0, 0.0, 10**6)
    charges = [pressure.begin(1.0, n) for *_, n, _ in events]
    for charge in charges:
        pressure.change(charge, 2.0, charge.blocks // 2)
        pressure.end(charge, 9.0)
    assert all(charge.wanted == Reading() for charge in charges)


def test_two_pauses_share_what_others_lack() -> None:
    pressure = Pressure()
    large, small = pressure.begin(0.0, 30), pressure.begin(0.0, 10)
    pressure.lack(1.0, lacked=20, free=3)
    pressure.lack(5.0, lacked=0, free=3)
    for charge in (large, small):
        pressure.end(charge, 10.0)
    assert (large.cost, small.cost) == (30 * 4 / 2, 10 * 4 / 2)
    assert large.wanted == Reading(held=2.0, kept=2.0, wanted=4.0)


def test_blocks_given_up_to_others_would_have_been_lacked() -> None:
    """It gives 20 of 30 to others, who then lack nothing: it holds for free; keeping had cost."""
    pressure = Pressure()
    charge = pressure.begin(0.0, 30)
    pressure.change(charge, 0.0, held=10)
    pressure.lack(0.0, lacked=0, free=5)
    pressure.result(charge, 4.0)
    pressure.end(charge, 6.0)
    assert charge.cost == 0
    assert charge.wanted == Reading(held=0.0, kept=4.0 * 15 / 30, wanted=4.0)
    assert charge.queued == Reading()  # behind its result it wants them back


def test_a_share_is_at_most_all() -> None:
    assert (share(0, 10), share(5, 0), share(5, 10), share(50, 10)) == (0, 0, 0.5, 1)
