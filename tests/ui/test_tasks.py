"""What people ask of the page, each answered from the open page, and the clicks that it takes.

The recordings are scripted, so that the right answer is known. A click is a press of a button, a
link or a tab, a choice in a list, or going to a field to type.
"""

import asyncio
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from caesura.runtime.recording.entries import Entry, Recording
from caesura.runtime.recording.storage import Store
from caesura.runtime.testing import call, say
from caesura.runtime.whatif.replays import Replays
from caesura.simulator.engine import simulate
from caesura.simulator.policy import POLICIES
from caesura.simulator.session import Workload
from caesura.simulator.trace import recording as recording_of
from caesura.tools.people import People, PeopleSettings, with_approval
from caesura.tools.tool import tool
from tests.kit.browser import Open, Shown
from tests.runtime.whatif.stretches import ABOUT, CALIBRATION, child_of, session
from tests.runtime.whatif.stretches import BEGAN as REPLAYED

from . import burst
from . import recordings as made
from .reading import about, amount, cells, plain


class Task(NamedTuple):
    """What is asked, and the clicks to the answer; none: the page did not tell it at that time."""

    asks: str
    before: int | None
    now: int


TASKS = {
    "a": Task("Why was this one slow?", 1, 1),
    "b": Task("Which tool costs most?", 2, 1),
    "c": Task("What would another policy have cost?", 4, 4),
    "d": Task("Who took whose memory?", 2, 2),
    "e": Task("Which session of this user loops?", None, 2),
    "f": Task("Is the prefix cache hit after each turn, and if not, why?", 3, 2),
    "g": Task("Approve a call", 3, 3),
    "h": Task("Is today slower than yesterday?", 3, 1),
    "i": Task("Send this to a colleague", 1, 1),
    "j": Task("When and why did the engine die, and whom did it hit?", None, 0),
    "k": Task("Who uses the engine now?", None, 2),
    "l": Task("What failed, how often, since when?", None, 1),
    "m": Task("Which session, and which user, took most tokens?", 2, 3),
    "m by tool": Task("Which tool cost most, at a price?", None, 4),
    "n": Task("From the id in a client's log to its request", None, 3),
    "o": Task("Take it to Perfetto", 2, 2),
}
"""`before` is of the page as it was first walked."""


class Walk:
    """Counts what a user does, and holds it against the table."""

    def __init__(self, shown: Shown, name: str) -> None:
        self.shown = shown
        self.task = TASKS[name]
        self.clicks = 0

    async def tab(self, view: str) -> None:
        await self.click(f"nav a[href*='#/{view}']")

    async def click(self, selector: str) -> None:
        self.clicks += 1
        await self.shown.page.locator(selector).first.click()

    async def choose(self, selector: str, value: str) -> None:
        self.clicks += 1
        await self.shown.page.locator(selector).first.select_option(value)

    async def type(self, selector: str, text: str) -> None:
        self.clicks += 1
        await self.shown.page.fill(selector, text)

    def ends(self) -> None:
        assert self.clicks == self.task.now, self.task.asks


async def test_a_why_one_request_was_slow(open_page: Open, exported: Any) -> None:
    recorded, entries = burst.burst()
    longest = max(
        (entry for entry in entries if entry["kind"] == "session"),
        key=lambda entry: entry["at"] - entry["arrival"],
    )
    waited = [
        entry["pause_seconds"]
        for entry in entries
        if entry["kind"] == "pause" and entry["session"] == longest["session"]
    ]
    assert waited and max(waited) >= burst.SLOW_SECONDS, "the slowest one called the slow tool"
    shown = await open_page(exported((recorded, entries)))
    walk = Walk(shown, "a")
    await walk.click("[data-testid=slowest] [data-testid=ov-request] a")
    await shown.says(burst.SLOW_TOOL, within="[data-testid=cause]")
    took = amount(await shown.text("[data-testid=request-time]"))
    assert took == about(longest["at"] - longest["arrival"])
    walk.ends()


async def test_b_which_tool_costs_most(open_page: Open, exported: Any) -> None:
    recorded, entries = burst.burst()
    cost: dict[str, float] = defaultdict(float)
    for entry in entries:
        if entry["kind"] == "pause":
            cost[entry["tool"]] += entry["cost"]
    dearest = max(cost, key=cost.__getitem__)
    shown = await open_page(exported((recorded, entries)))
    walk = Walk(shown, "b")
    await walk.tab("tools")
    first = shown.page.locator(".tools-table tbody tr").first
    await first.wait_for()
    assert await first.get_attribute("data-testid") == f"tool-{dearest}"
    told = await first.locator("[data-testid=totalCost]").inner_text()
    assert amount(told) == about(cost[dearest])
    walk.ends()


async def test_c_what_another_policy_would_have_cost(
    open_page: Open, serving: Any, tmp_path: Path
) -> None:
    def replays(store: Store) -> Replays:
        return Replays(store, lambda: CALIBRATION, start=child_of(tmp_path, made.REPLAYED))

    facts = {**ABOUT, "handling": "caesura", "ranking": "fcfs", "admission": "vllm"}
    held = Recording(1, "what was", "serve", REPLAYED, REPLAYED + 60, about=facts)
    entries = [*session("a", 0), *session("b", 2), *made.entries()]
    endpoint = await serving(held=[(held, entries)], replays=replays)
    shown = await open_page(f"{endpoint.ui}#/overview?rec=1")
    walk = Walk(shown, "c")
    await walk.tab("compare")
    await walk.click("[data-testid=what-if] summary")
    await walk.choose("[data-testid=what-if] label:has-text('handling') select", "preserve")
    await walk.click("[data-testid=what-if] button:text-is('Replay')")
    rows = shown.page.locator("[data-testid=what-if-replays] tbody tr")
    await rows.nth(1).wait_for()
    assert "handling preserve" in await rows.nth(1).inner_text()
    assert "1.25×, slower" in await rows.nth(1).inner_text()
    walk.ends()


async def test_d_who_took_whose_memory(open_page: Open, exported: Any) -> None:
    taken = [[1.0, "discard", 20, "admit", 910.0, 37.4, None, made.D]]
    entries = [
        entry | {"decisions": taken} if entry is made.ASKED_PAUSE else entry
        for entry in made.entries()
    ]
    shown = await open_page(exported((made.recording(), entries)))
    walk = Walk(shown, "d")
    await walk.tab("decision")
    await walk.click(f"a[href*='#/decision/{made.B}/']")
    await shown.page.wait_for_selector(".dc-card")
    taker = shown.page.locator(f".dc-card li a[href*='sel={made.D}'], tr a[href*='sel={made.D}']")
    assert await taker.count() >= 1
    walk.ends()


def of_users() -> list[Entry]:
    """The recording by hand, with a user, an answer's id and a follow-up; `a` goes in circles."""
    users = {"a" * 32: "ann", "b" * 32: "bob", "c" * 32: "bob", "d" * 32: "ann"}
    entries = []
    for entry in made.failing():
        if entry["kind"] == "span":
            more: dict[str, Any] = {}
            if entry["parent"] is None:
                more = {
                    "user.id": users[entry["trace"]],
                    "gen_ai.response.id": f"chatcmpl-{entry['trace'][:8]}",
                    "caesura.x_request_id": f"req-{entry['trace'][:4]}",
                }
            if entry["span"].startswith("a3"):
                more = {
                    "caesura.follow_up.outcome": "rendered",
                    "caesura.follow_up.why": "changed",
                    "caesura.follow_up.field": "messages[1].content",
                    "caesura.follow_up.kept": "It is Monday.",
                    "caesura.follow_up.sent": "It is Sunday.",
                }
            entry = entry | {"attributes": {**entry["attributes"], **more}}
        entries.append(entry)
    return entries


@pytest.fixture
def users(exported: Any) -> str:
    return str(exported((made.recording(), of_users())))


async def test_e_which_session_of_a_user_loops(open_page: Open, users: str) -> None:
    shown = await open_page(users)
    walk = Walk(shown, "e")
    await walk.tab("session")
    await walk.choose("[data-testid=by-user]", "ann")
    rows = shown.page.locator("[data-testid=session-row]")
    await shown.says("2 of 4 sessions", within="nav.sessions")
    marked = [text for text in await rows.all_inner_texts() if "search × 4" in plain(text)]
    assert len(marked) == 1
    walk.ends()


async def test_f_whether_the_prefix_cache_is_hit_by_turn(open_page: Open, users: str) -> None:
    shown = await open_page(users)
    walk = Walk(shown, "f")
    await walk.tab("session")
    await walk.click("[data-testid=session-row] a[href*='conversation-a']")
    second = shown.page.locator("[data-testid=turn]").nth(1)
    await second.wait_for()
    assert "199 cached" in plain(await second.inner_text())
    await shown.says("rendered again: changed (messages[1].content)", within="[data-testid=turn]")
    walk.ends()
    await shown.says("remembered", "It is Monday.", "came back", within="[data-testid=difference]")
    marked = await shown.page.locator("[data-testid=difference] mark").all_inner_texts()
    assert marked == ["Mo", "Su"]


async def test_g_a_call_is_approved(open_page: Open, serving: Any, tmp_path: Path) -> None:
    ran: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    people = People(tmp_path / "people.sqlite", PeopleSettings())
    script = [call("pay", amount=5), say("Done.")]
    endpoint = await serving(script, [with_approval(pay, people)], people=people)
    answer = asyncio.create_task(endpoint.ask("Pay.", "pay"))
    try:
        shown = await open_page(endpoint.ui)
        walk = Walk(shown, "g")
        await walk.click(".pn-button")
        await shown.says('"amount": 5', within="[data-testid=pending]")
        await walk.click("[data-testid=pending] [type=checkbox]")
        await walk.click("[data-testid=pending] button.primary")
        await answer
        assert ran == [5]
        walk.ends()
    finally:
        answer.cancel()
        await people.aclose()


def run_by(policy: str) -> tuple[Recording, list[Entry]]:
    """The burst under a policy."""
    workload = Workload("a burst of 200 requests", tuple(burst.sessions()))
    run = simulate(workload, burst.machine(), POLICIES[policy], records=True)
    return Recording.from_public(recording_of(run, len(run.records))), run.records


def mean_latency(entries: list[Entry]) -> float:
    """The mean latency of sessions, without the time of their tools."""
    ended = [entry for entry in entries if entry["kind"] == "session"]
    tools = sum(entry["pause_seconds"] for entry in entries if entry["kind"] == "pause")
    took = sum(entry["at"] - entry["arrival"] for entry in ended)
    return float(took - tools) / len(ended)


async def test_h_whether_one_run_was_slower_than_another(open_page: Open, exported: Any) -> None:
    held = [run_by("caesura"), run_by("preserve")]
    ratio = mean_latency(held[1][1]) / mean_latency(held[0][1])
    assert abs(ratio - 1) > 0.02, "else there is nothing to tell"
    shown = await open_page(exported(*held))
    walk = Walk(shown, "h")
    await walk.tab("compare")
    row = shown.page.locator("[data-testid=metric-latency_mean]")
    await row.wait_for()
    assert amount(await row.locator("[data-testid=ratio]").inner_text()) == about(ratio)
    walk.ends()


async def test_i_a_link_shows_a_colleague_the_same(open_page: Open, serving: Any) -> None:
    endpoint = await serving(held=[(made.recording(), of_users())])
    options = {"permissions": ["clipboard-read", "clipboard-write"]}
    shown = await open_page(f"{endpoint.ui}#/timeline?rec=1&sel={made.D}", **options)
    walk = Walk(shown, "i")
    await walk.click("[data-testid=copy-link]")
    await shown.says("Copied", within="[data-testid=copy-link]")
    link = await shown.page.evaluate("navigator.clipboard.readText()")
    theirs = await open_page(link)
    await theirs.page.wait_for_selector("[data-testid=cause]")
    assert await theirs.text("[data-testid=cause]") == await shown.text("[data-testid=cause]")
    walk.ends()


async def test_j_when_and_why_the_engine_died(open_page: Open, exported: Any) -> None:
    died = {"kind": "restart", "at": made.BEGAN + 5, "why": "out of memory"}
    entries = [
        made.lanes([(1.0, "lost-1", "decode", 4, 0, 64), (2.0, "lost-2", "decode", 4, 0, 64)]),
        {**died, "state": "down"},
        {**died, "state": "restarted", "seconds": 30.0, "attempts": 1},
        made.lanes([(40.0, "new", "decode", 4, 0, 64), (41.0, "new", "ended", 0, 0, 64)]),
    ]
    shown = await open_page(exported((made.recording(ended=made.BEGAN + 60), entries)))
    walk = Walk(shown, "j")
    await shown.says("out of memory", "30.0 s", "2 ended with it", within="[data-testid=death]")
    walk.ends()


async def test_k_who_uses_the_engine_now(open_page: Open, serving: Any) -> None:
    ago = time.time() - made.BEGAN - 60
    running = [("ann", "chat-1", "decode", 30), ("ann", "chat-2", "paused", 10)]
    running += [("bob", "chat-3", "waiting", 0), ("eve", "chat-4", "prefill", 24)]
    rows = [(ago, request, state, blocks, 0, 500) for _, request, state, blocks in running]
    # The dearest of all has gone.
    rows += [(ago, "chat-5", "decode", 900, 0, 9000), (ago + 20, "chat-5", "ended", 0, 0, 9000)]
    runs = [
        made.span(
            str(number),
            "0",
            "invoke_agent helper",
            ago,
            None,
            caesura__tenant=tenant,
            caesura__request__id=request,
        )
        for number, (tenant, request) in enumerate(
            [*(known[:2] for known in running), ("carl", "chat-5")], 1
        )
    ]
    endpoint = await serving()
    await endpoint.written([*runs, made.lanes(rows)])
    shown = await open_page(endpoint.ui)
    walk = Walk(shown, "k")
    await walk.tab("who")
    await walk.click("[data-testid=who-now]")
    await shown.says("3 tenants at", within="[data-testid=who-view]")
    told = [row[:6] for row in await cells(shown.page, "[data-testid=who-row]")]
    assert told == [
        ["ann", "1", "1", "0", "40", "63 %"],
        ["eve", "1", "0", "0", "24", "38 %"],
        ["bob", "0", "0", "1", "0", "0 %"],
    ]
    walk.ends()
    later = time.time() - made.BEGAN
    await endpoint.written([made.lanes([(later, "chat-3", "decode", 136, 0, 2000)])])
    await shown.says("136", "68 %", within="[data-testid=who-row]:first-child")


async def test_l_what_failed_how_often_and_since_when(open_page: Open, users: str) -> None:
    shown = await open_page(users)
    walk = Walk(shown, "l")
    await walk.tab("errors")
    await shown.page.wait_for_selector("[data-testid=error-row]")
    rows = await cells(shown.page, "[data-testid=error-row]")
    search = next(row for row in rows if row[2] == "search")
    assert search[:2] == ["failed", "HTTP # from upstream search-# after # s"]
    times, first, last = search[4:7]
    assert times == "4" and first < last
    walk.ends()


async def test_m_which_session_of_a_user_took_most_tokens(open_page: Open, users: str) -> None:
    shown = await open_page(users)
    walk = Walk(shown, "m")
    await walk.tab("session")
    await walk.choose("[data-testid=by-user]", "ann")
    await walk.click(".sessions th button:text-is('tokens')")
    await shown.page.wait_for_selector("th[aria-sort=descending]")
    first = await shown.text("[data-testid=session-row] >> nth=0")
    assert "520" in first, "the longest context of ann's is that of d"
    walk.ends()


async def test_m_which_tool_cost_most(open_page: Open, exported: Any) -> None:
    entries = [
        entry | {"given_tokens": 700}
        if entry["kind"] == "session" and entry["session"] == made.B
        else entry
        for entry in of_users()
    ]
    shown = await open_page(exported((made.recording(), entries)))
    walk = Walk(shown, "m by tool")
    await walk.tab("who")
    await walk.click("[data-testid=who-view] button:text-is('tool')")
    await walk.type("[data-testid=price-input]", "1000000")
    await shown.page.keyboard.press("Enter")
    await walk.click(".wh-table th button:text-is('cost')")
    await shown.page.wait_for_selector("th[aria-sort=descending] button:has-text('cost')")
    first = shown.page.locator("[data-testid=who-row]").first
    assert (await first.inner_text()).startswith("ask_user")
    assert amount(await first.locator("[data-testid=cost]").inner_text()) == 700
    walk.ends()


@pytest.mark.parametrize("known", ["chatcmpl-aaaaaaaa", "req-aaaa"])
async def test_n_from_an_id_in_a_log_to_the_request(
    open_page: Open, users: str, known: str
) -> None:
    shown = await open_page(users)
    walk = Walk(shown, "n")
    await walk.tab("session")
    await walk.type("[data-testid=session-search]", known)
    await shown.says("1 of 4 sessions", within="nav.sessions")
    await walk.click("[data-testid=session-row] a")
    await shown.says(known, within="[data-testid=session-detail]")
    walk.ends()


async def test_o_it_is_taken_to_perfetto(open_page: Open, serving: Any, tmp_path: Path) -> None:
    endpoint = await serving(held=[(made.recording(), made.entries())])
    shown = await open_page(f"{endpoint.ui}#/overview?rec=1")
    walk = Walk(shown, "o")
    await walk.click("button:text-is('Export')")
    async with shown.page.expect_download() as download:
        await walk.click("button:text-is('JSON for Perfetto')")
    path = tmp_path / "perfetto.json"
    await (await download.value).save_as(path)
    names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
    assert "decode" in names
    walk.ends()
