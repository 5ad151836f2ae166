"""A plan and its run on the page: while it runs, by keyboard, on a phone, and as a file."""

from typing import Any

import pytest

from caesura.planning.plan import Makespan, Placement, Plan, Stage
from caesura.planning.show.records import PlannedWork, other_plan, plan_record
from caesura.runtime.recording.entries import Entry, Recording
from caesura.scheduler.records import ProgressRecord, ReplicaRecord, StageRecord
from caesura.scheduler.records.plans import PlacementRecord
from tests.kit.browser import Open, Shown
from tests.ui.reading import CONTRAST

from .recordings import BEGAN

SMALL, LARGE = Placement("small"), Placement("large")
BOTH = Placement("large", 2)
PLAN = Plan(
    "best",
    2,
    (Stage((SMALL, LARGE), 20.0, ("small",)), Stage((BOTH,), 10.0, ("large",))),
    Makespan(30.0, 28.0, 33.0),
)
WORSE = Plan("max", 2, PLAN.stages, Makespan(41.0, 40.0, 42.0))
CHOSEN = "[data-testid=plan-chosen]"


def planned() -> Entry:
    other = other_plan(WORSE, "max takes 11.0 s longer (36.7%): it loads models")
    work = PlannedWork("ensemble", {"small": 10, "large": 10}, lambda one: 4.0)
    return plan_record(PLAN, work, at=BEGAN, next_best=other).entry()


def engine(name: str, device: int, state: str, at: float, reason: str = "") -> Entry:
    model = name.split("-")[0]
    return ReplicaRecord(BEGAN + at, name, model, [float(device)], state, reason).entry()


def done(at: float, small: int, large: int, state: str = "running") -> Entry:
    counts = [float(small), float(large)]
    return ProgressRecord(BEGAN + at, state, ["small", "large"], [10.0, 10.0], counts).entry()


def stage(at: float, number: int, *placements: Placement) -> Entry:
    rows = tuple(PlacementRecord(one.model, one.replicas) for one in placements)
    return StageRecord(BEGAN + at, number, rows).entry()


def first_half() -> list[Entry]:
    return [
        planned(),
        done(0, 0, 0),
        stage(0, 0, SMALL, LARGE),
        engine("small-0", 1, "loading", 0),
        engine("large-0", 0, "loading", 0),
        engine("small-0", 1, "serving", 5),
        engine("large-0", 0, "serving", 9),
        done(15, 6, 1),
    ]


def second_half() -> list[Entry]:
    return [
        done(24, 10, 3),
        stage(24, 1, BOTH),
        engine("small-0", 1, "draining", 24),
        engine("small-0", 1, "evicting", 25),
        engine("small-0", 1, "gone", 26),
        engine("large-1", 1, "loading", 26),
        engine("large-1", 1, "serving", 30),
        done(36, 10, 10, "finished"),
    ]


def recording(**more: Any) -> Recording:
    given: dict[str, Any] = {"started": BEGAN, "ended": BEGAN + 36} | more
    return Recording(1, "caesura run, ensemble", "plan", **given)


@pytest.fixture
async def shown(open_page: Open, exported: Any) -> Shown:
    url = exported((recording(), [*first_half(), *second_half()]))
    return await open_page(url)


async def test_a_run_alone_opens_with_its_plan(shown: Shown) -> None:
    await shown.says("ensemble", "30.0 s (28.0 s to 33.0 s)", "20 of 20 done", within="main")
    await shown.says("Max takes 11.0 s longer (36.7%): it loads models.", within="main")
    assert await shown.text("header [aria-current=page]") == "Plan"
    rows = await shown.page.locator("[data-testid=plan-stage]").all_inner_texts()
    assert "+4.0 s" in rows[0] and "+2.0 s" in rows[1]


async def test_blocks_are_walked_through_by_keys(shown: Shown) -> None:
    await shown.page.locator(".plan-track [tabindex='0']").focus()
    await shown.says("The plan: ", "loading on device 0 from 0.0 s to 4.0 s", within=CHOSEN)
    await shown.press("ArrowRight")
    await shown.says("serving on device 0 from 4.0 s", within=CHOSEN)
    await shown.press("ArrowDown")
    await shown.press("ArrowDown")
    await shown.press("ArrowDown")
    await shown.says("The run: ", "on device 1", within=CHOSEN)
    label = await shown.page.evaluate("() => document.activeElement.getAttribute('aria-label')")
    assert label.startswith("The run: ")


async def test_states_differ_without_colour(shown: Shown) -> None:
    """Patterns and borders differ, and each block says in words what its engine does."""
    looks: dict[str, str] = {}
    for state in ("loading", "serving", "draining", "evicting"):
        block = shown.page.locator(f".plan-track .plan-block.{state}").first
        looks[state] = await block.evaluate(
            "one => { const style = getComputedStyle(one);"
            " return style.backgroundImage.replace(/color\\([^)]*\\)|rgba?\\([^)]*\\)/g, '')"
            " + style.borderTopStyle }"
        )
    assert len(set(looks.values())) == 4, looks
    said = await shown.page.locator(".plan-block.draining").first.get_attribute("aria-label")
    assert said is not None and "finishing its requests" in said


async def test_the_chart_as_a_table_is_in_the_address(shown: Shown) -> None:
    await shown.page.click("text=The chart as a table")
    await shown.says("small-0", "leaving the device", within="[data-testid=plan-blocks]")
    assert "plan.blocks=1" in shown.page.url
    await shown.page.reload()
    await shown.says("leaving the device", within="[data-testid=plan-blocks]")


async def test_it_goes_on_while_the_run_does(open_page: Open, serving: Any) -> None:
    endpoint = await serving()
    shown = await open_page(f"{endpoint.ui}#/timeline")
    await shown.says("Waiting for the first request")
    assert "Plan" not in await shown.text("header nav")
    await endpoint.written(first_half())
    await shown.says("7 of 20 done", "So far", within="main")
    assert await shown.page.locator(".plan-track .plan-block.open").count() == 2
    await endpoint.written(second_half())
    await shown.says("20 of 20 done", "The run took", "36.0 s", within="main")
    assert await shown.page.locator(".plan-track .plan-block.open").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_read_on_a_phone_in_both_themes(
    open_page: Open, exported: Any, scheme: str
) -> None:
    url = exported((recording(), [*first_half(), *second_half()]))
    shown = await open_page(
        f"{url}#/plan?plan.blocks=1",
        color_scheme=scheme,
        viewport={"width": 390, "height": 800},
    )
    await shown.says("leaving the device", within="[data-testid=plan-blocks]")
    wide = await shown.page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= 390, "only the chart and the tables scroll sideways"
    assert await shown.page.evaluate(CONTRAST) == []
