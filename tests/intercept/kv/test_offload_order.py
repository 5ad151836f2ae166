"""Copies behind: whose KV is copied first."""

from caesura.intercept.kv.offload_order import copy_order, turnover_seconds

from .views import paused, step


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
