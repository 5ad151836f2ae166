"""From a pause of the real engine to the figures on the page."""

import asyncio
from typing import Any

import pytest

from caesura.runtime.recording import catalog
from caesura.tools.calculator.tool import calculator
from tests.kit.browser import Open, Shown, chromium, open_page
from tests.ui.reading import about, amount, listed
from tests.ui.serving import Endpoint, serving

__all__ = ["chromium", "open_page", "serving"]
pytestmark = pytest.mark.engine

HANDLED = {"preserve": "preserved", "discard": "discarded", "swap": "swapped"}
"""What the page says of a handling. A loaded machine may have swapped the blocks."""


async def opening_and_end(endpoint: Endpoint) -> tuple[dict[str, Any], dict[str, Any]]:
    """Wait for the only pause that begins and ends in this recording.

    Others end in it: the engine is shared, and gives up what earlier tests left for follow-ups.
    """
    while True:
        entries = list(
            catalog.entries(
                endpoint.recorder.store.path, endpoint.recorder.recording or 0, ["opening", "pause"]
            )
        )
        ends = {entry["request"]: entry for entry in entries if entry["kind"] == "pause"}
        begun = [entry for entry in entries if entry["kind"] == "opening"]
        if begun and begun[0]["request"] in ends:
            (opening,) = begun
            return opening, ends[opening["request"]]
        await asyncio.sleep(0.1)


async def select(shown: Shown, request: str) -> None:
    """Go down the timeline to a request, below what it shows of earlier tests."""
    await shown.says("request", within=".tl-toolbar [role=status]")
    while request not in await shown.page.evaluate("location.hash"):
        await shown.press("j")


async def test_a_pause_is_shown_live_with_its_own_figures(
    engine: Any, settled: Any, open_page: Open, serving: Any
) -> None:
    endpoint = await serving(engine, [calculator], content=True)
    shown = await open_page(f"{endpoint.ui}#/timeline")
    await shown.says("Waiting for the first request")
    answered = await endpoint.ask("What is 48 * 17?", "calculator")
    assert "816" in answered["choices"][0]["message"]["content"]
    opening, pause = await opening_and_end(endpoint)
    await select(shown, pause["request"])
    await shown.says("calculator", within=".dc-pauses")
    await shown.says(HANDLED[pause["handling"]], within=".dc-pauses")  # the pause has ended
    await shown.press("]")
    await shown.press("Enter")
    await shown.says("Pause: calculator", within="main h2")
    assert (opening["request"], opening["at"]) == (pause["request"], pause["at"])
    figures = await listed(shown.page, ".dc-figures")
    for name, value in (
        ("Context", pause["context_tokens"]),
        ("Blocks of its own", pause["blocks"]),
        ("Device, free", opening["inputs"]["free_blocks"]),
        ("Device, all", opening["inputs"]["total_blocks"]),
        ("Queued", pause["queue_seconds"]),
    ):
        assert amount(figures[name]) == about(value), name
    lengths = await shown.page.locator(".dc-length .num").all_inner_texts()
    assert [amount(text) for text in lengths] == [
        about(pause["predicted_seconds"]),
        about(pause["pause_seconds"]),
    ]
    preserve = await shown.page.locator(".dc-price .num").first.inner_text()
    assert amount(preserve) == about(pause["prices"]["preserve"])

    await shown.view("#/session")
    await shown.page.click(f"[data-testid=session-row] a[href*='{pause['session']}']")
    await shown.says("What is 48 * 17?", "816", within="[data-testid=session-detail]")
    await shown.page.wait_for_selector("[data-testid=pause-chip]")


THOUGHT, ANSWER = "The user asks for 2+2. That is four.", "It is four."


async def test_thinking_is_shown_apart_from_the_answer_with_its_tokens(
    engine: Any, settled: Any, open_page: Open, serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        engine.language, "thinking", ("<think>",)
    )  # as for a template that shows it
    endpoint = await serving(engine, [calculator], content=True)
    written = f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"
    answered = await endpoint.ask(
        "What is 2+2?", "calculator", tool_choice="none", structured_outputs={"choice": [written]}
    )
    assert answered["choices"][0]["message"]["reasoning"] == THOUGHT
    thought = answered["usage"]["completion_tokens_details"]["reasoning_tokens"]

    shown = await open_page(f"{endpoint.ui}#/session")
    await shown.page.click("[data-testid=session-row] a[title*='2+2']")
    await shown.says("What is 2+2?", ANSWER, within="[data-testid=session-detail]")
    told = shown.page.locator("[data-testid=thinking-tokens]")
    assert amount(await told.inner_text()) == about(thought)
    assert THOUGHT not in await shown.text("[data-testid=session-detail]")  # it is folded
    await shown.page.click("[data-testid=thought] summary")
    await shown.says(THOUGHT, within="[data-testid=thought]")
