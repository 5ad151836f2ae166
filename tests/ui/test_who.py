"""Who used the engine: usage and cost of a stretch, sub-agents under their parents, refusals."""

from typing import Any

from tests.kit.browser import Open, Shown

from . import recordings as made

REFUSED = {
    "kind": "http",
    "route": "/v1/chat/completions",
    "at": made.BEGAN + 1,
    "status": 429,
    "code": "rate_limited",
    "tenant": "bob",
    "request_id": "mine-4711",
}


def asked() -> list[dict[str, Any]]:
    """The recording by hand, in which Ann asks, and the run of B was started by that of A."""
    entries = []
    for entry in made.entries():
        attributes = entry.get("attributes", {})
        if entry["kind"] == "span" and attributes["gen_ai.operation.name"] == "invoke_agent":
            run = entry["trace"][0]
            named = {"caesura.tenant": "ann", "session.id": f"agent-{run}"}
            if run == "b":
                named["caesura.session.parent"] = "agent-a"
            entry = {**entry, "attributes": attributes | named}
        entries.append(entry)
    return [*entries, REFUSED]


async def opened(open_page: Open, exported: Any, view: str) -> Shown:
    return await open_page(f"{exported((made.recording(), asked()))}{view}")


async def test_usage_by_tenant_has_costs_that_outlive_a_reload(
    open_page: Open, exported: Any
) -> None:
    shown = await opened(open_page, exported, "#/who")
    rows = shown.page.locator("[data-testid=who-row]")
    await rows.filter(has_text="ann").wait_for()
    assert await rows.filter(has_text="bob").locator("[data-testid=failures]").inner_text() == "1"
    assert not await shown.page.locator("[data-testid=cost]").count()
    await shown.page.get_by_test_id("price-gpu").fill("3600")
    await shown.page.get_by_test_id("price-gpu").press("Enter")
    cost = await rows.filter(has_text="ann").locator("[data-testid=cost]").inner_text()
    assert float(cost) > 0
    await shown.page.reload()
    await rows.filter(has_text="ann").locator("[data-testid=cost]").wait_for()
    assert await rows.filter(has_text="ann").locator("[data-testid=cost]").inner_text() == cost


async def test_a_session_folds_out_its_sub_agents_by_keyboard(
    open_page: Open, exported: Any
) -> None:
    shown = await opened(open_page, exported, "#/who?wh.by=session")
    fold = shown.page.get_by_role("button", name="Sub-agents of agent-a")
    child = shown.page.locator("[data-testid=who-row]", has_text="agent-b")
    assert not await child.count()
    await fold.focus()
    await shown.page.keyboard.press("Enter")
    await child.wait_for()
    await child.get_by_role("link").click()
    await shown.says("1 of 4 requests", within=".tl-toolbar [role=status]")


async def test_a_refused_request_is_found_by_its_id(open_page: Open, exported: Any) -> None:
    shown = await opened(open_page, exported, "#/session/mine-4711")
    await shown.says("429 rate_limited", within="[data-testid=refused]")
    await shown.page.locator("[data-testid=refused] a").click()
    await shown.says("1 failure of 1 sort", within="[data-testid=errors]")
