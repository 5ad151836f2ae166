"""A real browser, and pages that are watched: what they ask for, what they complain about."""

import asyncio
import importlib.util
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Request

REQUIRED = os.environ.get("CAESURA_REQUIRE_BROWSER", "") not in ("", "0")
"""Set in CI: without a browser these tests then fail, and are not skipped."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000
"""How long anything is waited for; the machine may be busy with other tests."""


def executable() -> str | None:
    """Where Chromium is: named, or on the path."""
    named = os.environ.get("CAESURA_CHROMIUM")
    return next(filter(None, map(shutil.which, [named] if named else BROWSERS)), None)


def what_is_missing() -> str | None:
    if importlib.util.find_spec("playwright") is None:
        return "the package playwright is not installed: pip install -e '.[dev]'"
    if executable() is None:
        return "there is no Chromium: apt-get install chromium, or name one in CAESURA_CHROMIUM"
    return None


@pytest.fixture(scope="session")
async def chromium() -> "AsyncIterator[Browser]":
    missing = what_is_missing()
    if missing:
        pytest.fail(missing) if REQUIRED else pytest.skip(missing)
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=executable(), args=list(ARGUMENTS)
        )
        yield browser
        await browser.close()


@dataclass
class Seen:
    """What a page did beside being shown."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def watch(self, page: "Page") -> None:
        page.on("request", lambda request: self._asked(request))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self._said(said.type, said.text))
        page.on("dialog", self._dialog)

    def _asked(self, request: "Request") -> None:
        self.requests.append(request.url)

    def _said(self, kind: str, text: str) -> None:
        # The browser itself complains so of answers that the page deals with: 401, 404, 503.
        if kind in ("error", "warning") and "Failed to load resource" not in text:
            self.complaints.append(text)

    async def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        await dialog.dismiss()

    def elsewhere(self, own: str) -> list[str]:
        """Requests to anybody but the page's own server, or file."""
        begin = urlsplit(own)
        return [
            url
            for url in self.requests
            if urlsplit(url).scheme not in ("data", "blob")
            and (urlsplit(url).scheme, urlsplit(url).netloc) != (begin.scheme, begin.netloc)
        ]


@dataclass
class Shown:
    """A page that is open, and what it did."""

    page: "Page"
    seen: Seen
    url: str

    async def view(self, hash_: str) -> None:
        """Go to another view, as following a link does."""
        await self.page.evaluate("hash => { location.hash = hash }", hash_)

    async def text(self, selector: str = "main") -> str:
        return await self.page.inner_text(selector)

    async def press(self, key: str) -> None:
        """Press a key, again if Chromium dropped it: now and then it never reaches the page."""
        for _ in range(10):
            await self.page.evaluate(LISTEN)
            await self.page.keyboard.press(key)
            for _ in range(20):
                if await self.page.evaluate("() => window.pressedKeys > 0"):
                    return
                await asyncio.sleep(0.05)
        raise AssertionError(f"the key {key!r} never reached {self.page.url}")

    async def says(self, *texts: str, within: str = "body") -> None:
        """Wait until the page shows all of these texts.

        A closed dialog has its text too (`innerText` of what is not drawn), so only what is drawn
        counts.
        """
        from playwright.async_api import TimeoutError as TimedOut

        for text in texts:
            try:
                await self.page.wait_for_function(
                    "([within, text]) => [...document.querySelectorAll(within)].some((one) =>"
                    " one.checkVisibility()"
                    " && one.innerText.replace(/[\\u00a0\\u202f\\u2009]/g, ' ').includes(text))",
                    arg=[within, text],
                )
            except TimedOut:
                shown = await self.text("body")
                said = f"no {text!r} within {within} of {self.page.url}:\n{shown}"
                raise AssertionError(said) from None


# Capturing on the window comes before all listeners of the page, which then act or do not.
LISTEN = """() => {
  const count = () => window.pressedKeys++
  if (window.pressedKeys === undefined) addEventListener("keydown", count, true)
  window.pressedKeys = 0
}"""


Open = Callable[..., Awaitable[Shown]]
# Chromium drops keys that are pressed before a page's first frame is on the screen, now and then.
READ = "() => !document.querySelector('[data-testid=reading]')"
"""No recording is being read: until then a bar stands in the place of the view."""
PAINTED = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 150)))"


@pytest.fixture
async def open_page(chromium: "Browser") -> "AsyncIterator[Open]":
    """Open addresses, each in a browser profile of its own.

    After the test no page may have complained, opened a dialog, or asked anybody else.
    """
    opened: list[Shown] = []
    async with AsyncExitStack() as stack:

        async def open_(url: str, *, key: str = "", **options: Any) -> Shown:
            given: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}} | options
            context = await chromium.new_context(**given)
            stack.push_async_callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            if key:
                script = f"sessionStorage.setItem('caesura-api-key', {key!r})"
                await context.add_init_script(script)
            page = await context.new_page()
            seen = Seen()
            seen.watch(page)
            await page.goto(url)
            await page.evaluate(PAINTED)
            await page.wait_for_function(READ)
            opened.append(Shown(page, seen, url))
            return opened[-1]

        yield open_
        for shown in opened:
            assert shown.seen.complaints == []
            assert shown.seen.dialogs == []
            assert shown.seen.elsewhere(shown.url) == []
