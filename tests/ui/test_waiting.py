"""Questions and approvals on the page: seen, read in full, and answered with the server's key."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from caesura.runtime.testing import call, say
from caesura.tools.people import People, PeopleSettings, make_ask_user, with_approval
from caesura.tools.tool import tool
from tests.kit.browser import Open, Shown

from . import recordings
from .serving import Endpoint
from .views import OUTSIDE

KEY = "a-key-of-16-bytes"
ASKS = [call("ask_user", question="Which city?", options=["Oslo", "Rome"]), say("Done.")]
BUTTON, LIST, CARD = ".pn-button", "dialog.pn-list", "dialog.pn-list [data-testid=pending]"
VIEWS = (
    "overview",
    "timeline",
    "decision",
    "memory",
    "session",
    "tools",
    "who",
    "errors",
    "compare",
)
TURNED = "Oslo \u202e<img src=x onerror=alert(1)>\u200b"


@dataclass
class Desk:
    """A served script whose tools wait for people, and the request that runs."""

    endpoint: Endpoint
    people: People
    ran: list[Any]
    answer: "asyncio.Task[dict[str, Any]]"

    async def results(self) -> list[str]:
        return [one["content"] for one in (await self.answer)["caesura"]["calls"]]

    async def post(self, **body: Any) -> None:
        """Answer the item that waits, from elsewhere."""
        (item,) = self.people.waited_for
        path = f"{self.endpoint.url}/v1/pending/{item.id}"
        async with aiohttp.ClientSession() as http, http.post(path, json=body) as response:
            assert response.status == 200, await response.text()


Opened = Callable[..., Awaitable[Desk]]


@pytest.fixture
async def desk(serving: Any, tmp_path: Path) -> AsyncIterator[Opened]:
    begun: list[Desk] = []

    async def start(script: Any, *, deadline: float = 3600, **options: Any) -> Desk:
        ran: list[Any] = []

        @tool
        async def pay(amount: int, to: str = "") -> str:
            """Pay."""
            ran.append((amount, to))
            return f"paid {amount}"

        people = People(
            tmp_path / "people.sqlite", PeopleSettings(approval_deadline_seconds=deadline)
        )
        tools = [make_ask_user(people), with_approval(pay, people)]
        endpoint = await serving(script, tools, people=people, **options)
        answer = asyncio.create_task(endpoint.ask("Pay.", "pay", "ask_user"))
        begun.append(Desk(endpoint, people, ran, answer))
        return begun[-1]

    yield start
    for one in begun:
        one.answer.cancel()
        await asyncio.gather(one.answer, return_exceptions=True)
        await one.people.aclose()


async def opened(shown: Shown) -> None:
    """Open the list by the keyboard alone."""
    await shown.page.wait_for_selector(BUTTON)
    await shown.page.focus(BUTTON)
    await shown.press("Enter")
    await shown.page.wait_for_selector(CARD)


async def focused(shown: Shown) -> str:
    script = "document.activeElement.textContent || document.activeElement.type"
    return str(await shown.page.evaluate(script))


async def test_a_call_is_approved_by_the_keyboard_and_never_by_accident(
    open_page: Open, desk: Opened
) -> None:
    here = await desk([call("pay", amount=5, to=TURNED), say("Done.")], key=None)
    shown = await open_page(f"{here.endpoint.ui}#/session")
    await shown.says("Waiting for you 1", within=BUTTON)
    await opened(shown)
    await shown.says("May pay run?", "Arguments, all", "without an answer in", within=LIST)
    said = await shown.text(f"{CARD} pre")
    assert '"to": "Oslo ⟨U+202E⟩<img src=x onerror=alert(1)>⟨U+200B⟩"' in said
    assert await focused(shown) == "Waiting for you", "the focus is on a button"
    for _ in range(3):
        await shown.press("Enter")
    # From the heading the keyboard reaches the arguments, the reason, and what denies, in order.
    order = []
    for _ in range(5):
        await shown.press("Tab")
        order.append(await shown.page.evaluate("document.activeElement.textContent"))
    assert order[0].startswith('{"amount": 5') and order[2] == "Deny"
    box = shown.page.locator(f"{CARD} [type=checkbox]")
    approve = shown.page.locator(f"{CARD} button.primary")
    await box.focus()
    await shown.press("Enter")
    assert not await box.is_checked() and await approve.is_disabled()
    assert [item.state for item in here.people.waited_for] == ["open"]
    await shown.press("Space")
    await shown.press("Tab")
    await shown.press("Enter")
    await shown.says("Approved. The call runs now.", within=CARD)
    assert await here.results() == ["paid 5"] and here.ran == [(5, TURNED)]
    await shown.page.wait_for_selector(BUTTON, state="detached")


@pytest.mark.parametrize("key", [None, KEY])
async def test_a_call_is_denied_with_a_reason(open_page: Open, desk: Opened, key: Any) -> None:
    here = await desk([call("pay", amount=900), say("Done.")], key=key)
    shown = await open_page(here.endpoint.ui, key=key or "")
    await opened(shown)
    await shown.page.fill(f"{CARD} .pn-wide input", "too much")
    await shown.page.click(f"{CARD} button >> text=Deny")
    await shown.says("Denied. The model reads that, and why.", within=CARD)
    assert await here.results() == ["error: a person denied this call of pay: too much"]
    assert here.ran == []


@pytest.mark.parametrize("free", [False, True])
async def test_a_question_is_answered(open_page: Open, desk: Opened, free: bool) -> None:
    here = await desk(ASKS)
    shown = await open_page(here.endpoint.ui)
    await opened(shown)
    await shown.says("Which city?", "the call fails", within=CARD)
    send = shown.page.locator(f"{CARD} button.primary")
    assert await send.is_disabled()
    if free:
        await shown.page.fill(f"{CARD} textarea", "Neither: Bergen")
        await shown.press("Enter")
        assert here.people.waited_for, "Enter in the text sends it"
    else:
        await shown.page.check(f"{CARD} label:has-text('Rome') input")
    await send.click()
    await shown.says("Answered.", within=CARD)
    (result,) = await here.results()
    assert result.strip() == ("Neither: Bergen" if free else "Rome")


async def test_an_answer_from_elsewhere_is_told(open_page: Open, desk: Opened) -> None:
    here = await desk([call("pay", amount=5), say("Done.")])
    shown = await open_page(here.endpoint.ui)
    await opened(shown)
    await here.post(approve=False, reason="no", who="Eva")
    await shown.says("It was denied elsewhere by Eva: no", within=CARD)
    assert await shown.page.locator(f"{CARD} button").count() == 0
    await shown.press("Escape")
    await shown.page.wait_for_selector(LIST, state="hidden")


async def test_an_answer_that_comes_too_late_says_who_was_first(
    open_page: Open, desk: Opened
) -> None:
    """The page has not read the list again when the reader answers."""
    here = await desk([call("pay", amount=5), say("Done.")])
    shown = await open_page(here.endpoint.ui)
    await opened(shown)
    await shown.page.route("**/v1/pending", lambda route: route.abort())
    await here.post(approve=True, who="Eva")
    await shown.page.click(f"{CARD} button >> text=Deny")
    await shown.says("This came too late. It was approved elsewhere by Eva", within=CARD)
    assert await here.results() == ["paid 5"]


async def test_a_deadline_that_passes_is_told(open_page: Open, desk: Opened) -> None:
    here = await desk([call("pay", amount=5), say("Done.")], deadline=20)
    shown = await open_page(here.endpoint.ui)
    await opened(shown)
    await shown.says("Its deadline passed at", within=CARD)
    assert here.ran == []


async def test_a_server_that_is_gone_is_told(open_page: Open, desk: Opened) -> None:
    here = await desk([call("pay", amount=5), say("Done.")])
    shown = await open_page(here.endpoint.ui)
    await opened(shown)
    everything = "**/v1/pending**"
    await shown.page.route(everything, lambda route: route.abort())
    await shown.page.route(f"{everything}/*", lambda route: route.abort())
    await shown.page.click(f"{CARD} button >> text=Deny")
    await shown.says("it is not known whether this arrived", within=CARD)
    assert [item.state for item in here.people.waited_for] == ["open"]
    await shown.says("The server does not answer.", within=LIST)
    await shown.page.unroute_all()
    await shown.page.click(f"{CARD} button >> text=Deny")
    await shown.says("Denied.", within=CARD)


async def test_only_this_servers_own_recording_offers_it(open_page: Open, desk: Opened) -> None:
    held = [(recordings.recording(), recordings.entries())]
    here = await desk([call("pay", amount=5), say("Done.")], held=held)
    shown = await open_page(f"{here.endpoint.ui}#/session")
    await shown.page.wait_for_selector(BUTTON)
    option = shown.page.locator("select.picker option", has_text="made by hand")
    await shown.page.select_option("select.picker", value=await option.get_attribute("value"))
    await shown.page.wait_for_selector(BUTTON, state="detached")
    assert here.people.waited_for


async def test_an_export_asks_nobody(open_page: Open, exported: Any) -> None:
    shown = await open_page(exported((recordings.recording(), recordings.entries())))
    await shown.says("made by hand")
    assert await shown.page.locator(BUTTON).count() == 0
    assert not [url for url in shown.seen.requests if "pending" in url]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_telephone(open_page: Open, desk: Opened, scheme: str) -> None:
    here = await desk([call("pay", amount=5, to="x" * 3000), say("Done.")])
    screen = {"width": 390, "height": 844}
    shown = await open_page(here.endpoint.ui, viewport=screen, color_scheme=scheme)
    await opened(shown)
    box = await shown.page.locator(LIST).bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    script = "one => one.scrollWidth <= one.clientWidth"
    assert await shown.page.locator(LIST).evaluate(script), "something sticks out"
    await shown.page.check(f"{CARD} [type=checkbox]")
    await shown.page.click(f"{CARD} button.primary")
    assert await here.results() == ["paid 5"]


async def test_a_request_that_waits_offers_it_where_it_is_shown(
    open_page: Open, desk: Opened
) -> None:
    """The recording tells which request a completion runs as; here its lane is written by hand."""
    here = await desk([call("pay", amount=5), say("Done.")])
    async with here.people.watch() as items:
        item = await anext(items)
    run = {"kind": "span", "trace": "t1", "message": "", "status": "unset", "events": []}
    about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.response.id": item.session}
    turn = {"gen_ai.operation.name": "chat", "caesura.request.id": "r1"}
    at = item.created
    await here.endpoint.written(
        [
            run | {"span": "s1", "name": "run", "start": at, "end": None, "attributes": about},
            run
            | {"span": "s2", "parent": "s1", "name": "turn", "start": at, "end": at + 0.1}
            | {"attributes": turn},
            {"kind": "lanes", "request": ["r1-0"], "state": ["paused"], "at": [at]},
        ]
    )
    shown = await open_page(f"{here.endpoint.ui}#/timeline?sel=r1-0")
    await shown.says("May pay run?", within="aside")
    await shown.page.click("aside button >> text=Deny")
    await shown.says("Denied.", within="aside")
    assert here.ran == []


@pytest.mark.parametrize("width", [1366, 1280, 1024, 390])
async def test_nothing_is_pushed_aside_while_somebody_waits(
    open_page: Open, desk: Opened, width: int
) -> None:
    here = await desk([call("pay", amount=5), say("Done.")], key=None)
    size = {"width": width, "height": 720}
    shown = await open_page(f"{here.endpoint.ui}#/timeline", viewport=size)
    await shown.says("Waiting for you 1", within=BUTTON)
    for view in VIEWS:
        await shown.view(f"#/{view}")
        await shown.page.wait_for_selector(f"nav a[aria-current=page][href*='#/{view}']")
        assert await shown.page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert await shown.page.evaluate(OUTSIDE, "header a, header button, header select") == []
        picker = await shown.page.locator(".picker").bounding_box()
        assert picker is not None and picker["width"] >= 60, "the recording's name is to be seen"
