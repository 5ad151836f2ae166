"""The tokens of a session that the server keeps, as a tree on its page."""

from typing import Any

import aiohttp
import pytest

from caesura.runtime.testing import say
from caesura.runtime.trajectories.kept import KeptSessions, SessionBounds
from tests.kit.browser import Open
from tests.kit.rendered import RenderedEngine

from .views import OUTSIDE

BUTTON, TREE = ".tokens > button", "[data-testid=tokens-tree]"
BRANCH = "[data-testid=tokens-branch]"
HOSTILE = "s <img src=x onerror=alert(1)>"


def script(messages: Any, tools: Any) -> Any:
    return say("Yes. " * len(messages))


async def chat(url: str, *said: str) -> None:
    """Ask in the session as an unmodified client does, with the answers so far."""
    headers = {"Caesura-Session": HOSTILE}
    messages: list[Any] = []
    async with aiohttp.ClientSession(url, headers=headers) as http:
        for each in said:
            messages.append({"role": "user", "content": each})
            body = {"model": "tiny/scripted", "messages": messages, "server_tools": ["look"]}
            async with http.post("/v1/chat/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
                messages.append((await answer.json())["choices"][0]["message"])


async def look() -> str:
    """Look."""
    return "a cat"


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_tokens_of_a_session_are_a_tree_of_branches(
    open_page: Open, serving: Any, theme: str
) -> None:
    from caesura import tool

    sessions = KeptSessions(SessionBounds(), one_owner=True)
    endpoint = await serving(RenderedEngine(script), [tool(look)], sessions=sessions)
    await chat(endpoint.url, "Hi.", "And now?")
    await chat(endpoint.url, "Hi, there!")
    (session,) = sessions._kept.values()
    session.rewards["exact"] = 0.5
    shown = await open_page(f"{endpoint.ui}#/session", color_scheme=theme)
    await shown.page.click("[data-testid=session-row] a >> nth=0")
    await shown.page.click(BUTTON)
    await shown.says("2 branches", "exact 0.5", HOSTILE, within=TREE)
    first, second = [await each.inner_text() for each in await shown.page.locator(BRANCH).all()]
    made = session.trajectory().branches
    assert f"{made[1].branch_point:,}" in second.replace("\u202f", ",").replace(" ", ",")
    assert "count for the loss" in first and "shared" not in first
    bars = shown.page.locator(f"{BRANCH} >> nth=0").locator(".tokens-bar > i")
    classes = [await each.get_attribute("class") for each in await bars.all()]
    assert classes == ["tokens-prompt", "tokens-sampled", "tokens-user", "tokens-sampled"]
    await shown.page.click(f"{BRANCH} >> nth=0 >> summary")
    rows = await shown.page.locator(f"{BRANCH} >> nth=0").locator("tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows] == ["prompt", "sampled", "user", "sampled"]
    assert not await shown.page.evaluate(OUTSIDE, ".tokens > *")
    assert not shown.seen.complaints and not shown.seen.dialogs


async def test_a_server_that_keeps_none_shows_nothing(open_page: Open, serving: Any) -> None:
    from caesura import tool

    endpoint = await serving(RenderedEngine(script), [tool(look)])
    await chat(endpoint.url, "Hi.")
    shown = await open_page(f"{endpoint.ui}#/session")
    await shown.page.click("[data-testid=session-row] a >> nth=0")
    await shown.page.wait_for_selector("[data-testid=session-detail]")
    assert await shown.page.locator(".tokens").count() == 0
    assert not [each for each in shown.seen.requests if "trajectories" in each]
