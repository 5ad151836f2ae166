"""Where a request's time went: the account in its panel, its waits, its pauses and its steps."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from caesura.runtime.recording.entries import Entry
from tests.kit.browser import Open, Shown

from . import recordings as made
from .reading import amount, cells, plain

SENT = "caesura.request_sent"
BUDGET = "[data-testid=step-budget]"


def told(entries: list[Entry]) -> list[Entry]:
    """The recording by hand, with the moments at which turns went to the engine and answers came.

    `b` waits for a person in 3 of the 4 seconds of its call; `d` lacks tokens, slots and its turn.
    """
    found = []
    for entry in entries:
        name = entry.get("name", "")
        if name.startswith("chat"):
            entry = entry | {"events": [{"name": SENT, "at": entry["start"], "attributes": {}}]}
        if name == "execute_tool ask_user":
            asked, settled = made.BEGAN + 4.5, made.BEGAN + 7.5
            entry = entry | {
                "end": made.BEGAN + 7.75,
                "attributes": entry["attributes"] | {"caesura.person.seconds": 3.0},
                "events": [
                    {"name": "caesura.person.asked", "at": asked, "attributes": {}},
                    {"name": "caesura.person.settled", "at": settled, "attributes": {}},
                ],
            }
        if entry["kind"] == "wait":
            lacked = {"tokens": 30, "slots": 6, "line": 5}
            entry = entry | {"lacked": lacked, "behind": made.B, "needed_blocks": None}
        found.append(entry)
    return found


@pytest.fixture
async def shown(open_page: Open, exported: Any) -> AsyncIterator[Shown]:
    yield await open_page(exported((made.recording(1, "by hand"), told(made.entries()))))


async def account(shown: Shown, request: str) -> dict[str, float]:
    """The rows of the account in seconds; the last is their sum."""
    await shown.view(f"#/timeline?sel={request}")
    await shown.says(request, within="aside.dc-panel header")
    rows = await cells(shown.page, "[data-testid=account] tbody tr")
    assert rows
    return {row[0]: amount(row[1]) for row in rows} | {
        "all": amount(await shown.text("[data-testid=account-all]"))
    }


@pytest.mark.parametrize(("request_id", "seconds"), [(made.A, 9.0), (made.B, 9.0), (made.D, 6.5)])
async def test_the_rows_of_a_request_add_up_to_its_time(
    shown: Shown, request_id: str, seconds: float
) -> None:
    rows = await account(shown, request_id)
    await shown.says(f"{seconds:.2f} s: ", within="[data-testid=cause]")
    assert amount(await shown.text("[data-testid=request-time]")) == seconds
    assert rows.pop("all") == seconds
    assert sum(rows.values()) == pytest.approx(seconds, abs=0.02)


async def test_a_pause_is_split_into_tool_person_runtime_and_step(shown: Shown) -> None:
    await shown.view(f"#/timeline?sel={made.B}&pause={made.ASKED['at']}")
    for share, seconds in (("tool", 0.75), ("person", 3.0), ("runtime", 0.25)):
        within = f"aside [data-testid=split-{share}] b"
        await shown.page.wait_for_selector(within)
        assert amount(await shown.text(within)) == seconds
    await shown.says("a person took 3.00 s", within="[data-testid=cause]")
    await shown.view("#/tools?tool=ask_user")
    await shown.page.wait_for_selector("[data-testid=share-person]")
    (row,) = await cells(shown.page, "[data-testid=share-person]")
    assert [amount(text) for text in row[1:4]] == [3.0] * 3
    (own,) = await cells(shown.page, "[data-testid=tool-ask_user]")
    assert amount(own[4]) == 0.75
    await shown.view("#/session/conversation-b")
    await shown.says("waited for a person for 3.00 s", within="[data-testid=pause-chip]")


async def test_each_lack_asks_its_own_question(shown: Shown) -> None:
    await shown.view(f"#/timeline?sel={made.D}")
    buttons = shown.page.locator(".dc-wait .dc-ask")
    await buttons.first.wait_for()
    asked = ["Who took the tokens?", "Who had the slots?", "Who stood before it?"]
    assert await buttons.all_inner_texts() == asked
    await buttons.nth(0).focus()
    await shown.press("Enter")
    await shown.says("of 101 that it could take", within=".dc-wait")
    await shown.says("No other request computed a prompt", within=".dc-wait")
    await buttons.nth(1).click()
    rows = {row[0]: amount(row[2]) for row in await cells(shown.page, ".dc-holders tbody tr")}
    # Between 3 and 7 s, b decodes for a second; a for 0.1 s, after loading.
    assert rows == pytest.approx({made.B: 1.0, made.A: 0.1}, abs=0.002)
    await buttons.nth(2).click()
    await shown.says(f"It last stood behind ask_user · {made.B}", within=".dc-wait")


async def test_a_decode_says_what_a_token_took_and_who_ran_beside_it(shown: Shown) -> None:
    await shown.view(f"#/timeline?sel={made.A}")
    first = shown.page.locator("[data-testid=stretch]").first
    await first.wait_for()
    text = plain(await first.inner_text())
    # 49 tokens from 0.5 to 2 s, in six steps; `b` comes at 1.1 s.
    assert "30.6 ms a token" in text and "49 tokens in 1.50 s" in text
    assert "ran beside it, and its 6 steps also computed 100 prefill tokens" in text
    await first.locator("button").click()
    rows = await cells(shown.page, ".rq-stretch .dc-holders tbody tr")
    assert [row[0] for row in rows] == [made.B]


async def test_memory_tells_of_each_step_how_much_of_its_budget_it_used(shown: Shown) -> None:
    """By keyboard, from step to step."""
    await shown.view("#/memory")
    await shown.page.wait_for_selector("[data-testid=legend-seconds]")
    await shown.page.locator("[data-testid=memory-surface]").focus()
    await shown.press(",")
    steps = made.steps()
    tokens = [
        sum(steps[f"{name}_tokens"][row] for name in ("decode", "prefill", "recompute"))
        for row in range(40)
    ]
    for _ in range(8):
        await shown.press(",")
        moment = await shown.text("[data-testid=memory-moment]")
        row = int(moment.split("step ")[1].split()[0]) - 1
        said = plain(await shown.text(BUDGET))
        assert said.startswith(f"{tokens[row]} of 101 tokens")
        assert ("cut short" in said) == (tokens[row] >= 101)
    full = sum(one >= 101 for one in tokens)
    assert full
    await shown.says(f"{full} of 40 steps here used up", within="[data-testid=memory-cut]")


async def test_step_times_can_be_shown_below_the_lanes(shown: Shown) -> None:
    """The address keeps that they are, so that a link shows them."""
    await shown.view("#/timeline")
    await shown.page.click("[data-testid=step-strip-toggle]")
    await shown.says("200 ms at most", within="[data-testid=step-strip]")
    assert "tl.steps=1" in shown.page.url
    label = await shown.page.locator("[data-testid=step-strip] [role=img]").get_attribute(
        "aria-label"
    )
    assert label == "Step time, 200 ms at most, 8 steps cut short by their token budget"
    await shown.page.click("[data-testid=step-strip-toggle]")
    await shown.page.wait_for_selector("[data-testid=step-strip]", state="detached")


async def test_the_panel_fits_a_telephone(shown: Shown) -> None:
    await shown.page.set_viewport_size({"width": 390, "height": 800})
    await shown.view(f"#/timeline?sel={made.D}")
    await shown.page.wait_for_selector("[data-testid=account]")
    wide = "() => [...document.querySelectorAll('aside.dc-panel, aside.dc-panel table')].map("
    wide += "one => one.scrollWidth - one.clientWidth).filter(over => over > 1)"
    assert await shown.page.evaluate(wide) == []


async def test_the_panel_is_headed_by_the_question_and_names_the_id_once(
    open_page: Open, exported: Any
) -> None:
    question = "Where <b>is</b> it?"
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": question}]}])
    entries = made.entries()
    for entry in entries:
        if entry.get("name") == "chat tiny":
            entry["attributes"]["gen_ai.input.messages"] = asked
    shown = await open_page(
        f"{exported((made.recording(content=True), entries))}#/timeline?sel={made.A}"
    )
    await shown.says(question, made.A, within="aside.dc-panel header")
    panel = plain(await shown.text("aside.dc-panel"))
    assert panel.count(made.A) == 1
    await shown.page.click("[data-testid=request-session]")
    await shown.page.wait_for_selector("[data-testid=session-detail]")


async def test_the_panel_tells_what_differs_where_a_history_no_longer_continues(
    open_page: Open, exported: Any
) -> None:
    follows = {"outcome": "rendered", "why": "changed", "field": "messages[0].content"}
    texts = {"kept": "It is Monday.", "sent": "<b>It</b> is Monday."}
    attributes = {f"caesura.follow_up.{name}": said for name, said in (follows | texts).items()}
    entries = [
        entry | {"attributes": entry["attributes"] | attributes}
        if entry.get("span", "").startswith("d1")
        else entry
        for entry in made.entries()
    ]
    url = exported((made.recording(content=True), entries))
    shown = await open_page(f"{url}#/timeline?sel={made.D}")
    panel = "[data-testid=request-follow-up]"
    await shown.says("rendered again: changed (messages[0].content)", within=panel)
    await shown.says("It is Monday.", "<b>It</b> is Monday.", within=panel)
    await shown.view(f"#/timeline?sel={made.A}")
    await shown.says(made.A, within="aside.dc-panel header")
    assert not await shown.page.locator(panel).count()
