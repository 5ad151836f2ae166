"""Copies behind: whose KV is copied first."""

from dataclasses import replace

from caesura.intercept.kv.step_budget import (
    IDLE_STEP_SECONDS,
    copy_order,
    link_blocks,
    turnover_seconds,
    writes_behind,
)

from .views import COST, paused, step


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


def test_sessions_about_to_end_are_copied_last() -> None:
    pauses = [
        paused("ends", remaining=90.0, ends_next=0.8),
        paused("back", remaining=0.0, returned=True),
        paused("long", remaining=60.0, ends_next=0.4),
    ]
    assert [one.key for one in copy_order(pauses, step())] == ["long", "back", "ends"]


def test_copies_behind_begin_where_blocks_get_short() -> None:
    assert writes_behind(step(free_blocks=399), 0.4)
    assert not writes_behind(step(free_blocks=400), 0.4), "of 1000: nothing will be evicted soon"
    assert not writes_behind(step(free_blocks=1, swap_pays=False), 0.4)


def test_no_copies_are_made_ahead_where_they_hold_up_the_steps_for_too_long() -> None:
    dear = replace(COST, copy_stall=0.9 * COST.prefill_seconds_per_token * COST.out_rate / 2)
    assert dear.swap_pays, "what must go is copied all the same"
    assert not writes_behind(step(free_blocks=1, cost=dear), 0.4)


def test_the_link_carries_what_hides_behind_a_step() -> None:
    seconds = COST.step_seconds(16, 8_000)
    blocks = link_blocks(COST, 16, 8_000, 16)
    assert blocks == COST.link_tokens(seconds) // 16
    assert link_blocks(COST, 64, 8_000, 16) > blocks, "a longer step hides more"
    assert link_blocks(COST, 0, 0, 16) == COST.link_tokens(IDLE_STEP_SECONDS) // 16
    assert link_blocks(COST, 16, 8_000, 1_000_000) == 1, "a copy never stands still"
