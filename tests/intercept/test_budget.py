"""The link's budget: never more than there is, and in the right order."""

from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.budget import copy_order, share_link, turnover_seconds

from .views import paused, step

BLOCKS = st.lists(st.integers(0, 40), max_size=5)
COUNT = st.integers(0, 120)


def test_loads_then_swaps_then_copies_behind() -> None:
    shares = share_link(100, [30, 20], [40, 40], [50], host_free=999, device_free=999)
    assert shares == ([30, 20], [40, 10], [0])
    shares = share_link(100, [30], [40], [50], host_free=999, device_free=999)
    assert shares == ([30], [40], [30])


def test_the_host_and_the_device_bound_what_goes_there() -> None:
    shares = share_link(100, [30], [40], [40], host_free=50, device_free=20, new_blocks=15)
    assert shares == ([5], [40], [10])


def test_a_moving_block_leaves_a_place_behind() -> None:
    """Loads that find no room on the device go in as far as swaps go out before them."""
    arguments = {"host_free": 0, "device_free": 10}
    moved = share_link(50, [40], [40], [], **arguments, moves=True)
    assert moved == ([30], [20], [])
    assert share_link(50, [40], [40], [], **arguments) == ([10], [0], [])


@given(COUNT, BLOCKS, BLOCKS, BLOCKS, COUNT, COUNT, COUNT, st.booleans())
def test_the_conditions_hold(
    link: int,
    loads: list[int],
    swaps: list[int],
    behind: list[int],
    host_free: int,
    device_free: int,
    new_blocks: int,
    moves: bool,
) -> None:
    shares = share_link(
        link,
        loads,
        swaps,
        behind,
        host_free=host_free,
        device_free=device_free,
        new_blocks=new_blocks,
        moves=moves,
    )
    for given_out, wanted in zip(shares, (loads, swaps, behind), strict=True):
        assert all(0 <= share <= wish for share, wish in zip(given_out, wanted, strict=True))
        partial = [i for i, (s, w) in enumerate(zip(given_out, wanted, strict=True)) if s < w]
        assert not partial or not any(given_out[partial[0] + 1 :])  # in order, nobody is skipped
    total_in, total_swap, total_behind = map(sum, shares)
    out = total_swap + total_behind
    assert total_in + out <= link
    assert out <= host_free + moves * total_in
    assert not total_in or total_in + new_blocks <= device_free + moves * total_swap


@given(COUNT, BLOCKS, BLOCKS, COUNT, COUNT)
def test_no_link_time_is_left_where_it_could_be_used(
    link: int, swaps: list[int], behind: list[int], host_free: int, device_free: int
) -> None:
    shares = share_link(link, [], swaps, behind, host_free=host_free, device_free=device_free)
    used = sum(shares.swaps) + sum(shares.behind)
    assert used == min(link, host_free, sum(swaps) + sum(behind))


def test_the_longest_pause_is_copied_first_and_short_ones_never() -> None:
    view = step()
    short = turnover_seconds(view)
    assert 0 < short < 1
    pauses = [
        paused("short", remaining=0.9 * short),
        paused("back", remaining=0.0, returned=True),
        paused("long", remaining=60.0),
        paused("copied", blocks=20, copied=20, remaining=90.0),
        paused("middle", remaining=5.0),
    ]
    assert [one.key for one in copy_order(pauses, view)] == ["long", "middle", "back"]
