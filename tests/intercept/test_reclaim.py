"""Who gives up KV first."""

from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.reclaim import HeldKV, choose_victims, waste_preserve


def held(name: str, blocks: int, tokens: int, seconds: float) -> HeldKV:
    return HeldKV(name, blocks, tokens, seconds)


def test_the_largest_waste_goes_first() -> None:
    young_long = held("young", 10, 1000, 1.0)
    old_short = held("old", 2, 100, 100.0)
    assert choose_victims([young_long, old_short], 1) == ["old"]
    assert choose_victims([young_long, old_short], 3) == ["old", "young"]


def test_nobody_without_need() -> None:
    assert choose_victims([held("a", 10, 100, 5.0)], 0) == []


def test_who_frees_nothing_is_spared() -> None:
    assert choose_victims([held("shared", 0, 900, 50.0), held("own", 3, 90, 1.0)], 1) == ["own"]


HELD = st.lists(
    st.builds(
        HeldKV, st.uuids().map(str), st.integers(0, 50), st.integers(1, 5000), st.floats(0, 1e4)
    ),
    max_size=12,
)


@given(HELD, st.integers(0, 300))
def test_enough_and_no_more(candidates: list[HeldKV], needed: int) -> None:
    by_id = {candidate.request_id: candidate for candidate in candidates}
    victims = [by_id[name] for name in choose_victims(candidates, needed)]
    freed = sum(victim.blocks for victim in victims)
    assert freed >= min(needed, sum(candidate.blocks for candidate in candidates))
    assert not victims or freed - victims[-1].blocks < needed
    spared = [c for c in candidates if c not in victims and c.blocks]
    assert all(waste_preserve(v) >= waste_preserve(s) for v in victims for s in spared)
