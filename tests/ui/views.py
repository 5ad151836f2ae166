"""All views of the page, and what lies outside of the window in one."""

import re

from tests.kit.browser import Shown

VIEWS = (
    "overview",
    "timeline",
    "decision",
    "memory",
    "session",
    "tools",
    "who",
    "errors",
    "predictions",
    "compare?with=2",
)
OUTSIDE = """
(selector) => [...document.querySelectorAll(selector)].filter(one => {
  const box = one.getBoundingClientRect();
  return box.width > 0 && (box.left < -1 || box.right > innerWidth + 1);
}).map(one => one.innerText || one.ariaLabel || one.className)
"""


async def drawn(shown: Shown, view: str) -> None:
    await shown.view(f"#/{view}")
    name = re.split("[?/]", view)[0]
    await shown.page.wait_for_selector(f"nav a[aria-current=page][href*='#/{name}']")
    await shown.page.wait_for_selector("main > *")
