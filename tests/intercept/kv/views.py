"""Small worlds for the tests of policy: an engine's step and paused requests, by a few numbers."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.pause_durations import Durations
from caesura.intercept.kv.views import PausedKVView, StepView

COST = CostModel(
    base=0.01,
    per_token=2e-5,
    per_token_beyond=8e-5,
    per_context=3e-8,
    saturation=256,
    out_rate=100_000.0,
    in_rate=100_000.0,
)


def step(**changes: Any) -> StepView:
    """A step of 16 running requests in a cache of 1000 blocks of 16 tokens."""
    usual = StepView(
        block_size=16,
        total_blocks=1000,
        free_blocks=100,
        host_free=10_000,
        running_tokens=16,
        running_context=8_000,
        link_blocks=60,
        swap_pays=True,
        cost=COST,
    )
    return replace(usual, **changes)


def known(seconds: float, times: int = 20) -> Durations:
    """A tool that has taken `seconds` each of so many times."""
    return Durations(seconds, recent=(seconds,) * times)


def paused(key: str = "a", blocks: int = 50, copied: int = 0, **changes: Any) -> PausedKVView:
    """A pause of `blocks` blocks, `copied` of which have a copy, from the back."""
    usual = PausedKVView(
        key=key,
        tool="tool",
        durations=known(changes.get("remaining") or 10.0),
        elapsed=1.0,
        remaining=10.0,
        context_tokens=blocks * 16,
        resident=blocks,
        free_to_release=copied,
        uncopied=blocks - copied,
        hosted=copied,
        missing=0,
    )
    return replace(usual, **changes)


@st.composite
def any_paused(draw: st.DrawFn, key: str) -> PausedKVView:
    """Any pause that an engine could have."""
    blocks = draw(st.integers(0, 60))
    copied = draw(st.integers(0, blocks))
    recent = tuple(draw(st.lists(st.floats(0, 100), max_size=6)))
    durations = Durations(draw(st.floats(1e-3, 60)), recent=recent)
    elapsed = draw(st.floats(0, 100))
    return paused(
        key,
        blocks,
        copied,
        uncopied=draw(st.integers(0, blocks - copied)),
        missing=draw(st.integers(0, 10)),
        context_tokens=draw(st.integers(blocks * 16, blocks * 16 + 500)),
        durations=durations,
        elapsed=elapsed,
        remaining=durations.remaining(elapsed),
        returned=draw(st.booleans()),
    )


@st.composite
def any_pauses(draw: st.DrawFn) -> list[PausedKVView]:
    """Some pauses, each with a key of its own."""
    count = draw(st.integers(0, 8))
    return [draw(any_paused(f"r{index}")) for index in range(count)]


ANY_STEP = st.builds(
    step,
    host_free=st.integers(0, 200),
    running_tokens=st.integers(0, 600),
    running_context=st.integers(0, 50_000),
    link_blocks=st.integers(0, 100),
    swap_pays=st.booleans(),
    cost=st.sampled_from([COST, replace(COST, out_rate=0.0, in_rate=0.0)]),
)
