"""What axe-core finds in every view, in both themes: nothing of serious or critical kind."""

from pathlib import Path
from typing import Any

import pytest

from tests.kit.browser import REQUIRED, Open

from . import recordings as made
from .views import VIEWS, drawn

AXE = Path(__file__).parents[2] / "ui/node_modules/axe-core/axe.min.js"
"""`make ui` installs it."""
PARTS = (
    f"timeline?sel={made.D}",
    f"decision/{made.A}/{made.SEARCH['at']}",
    "session/conversation-a",
)
GRAVE = """
async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations
    .filter(one => one.impact === "serious" || one.impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(node => node.html).join(" | ")}`);
}
"""


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.is_file():
        missing = "axe-core is not installed: make ui, or npm ci in ui/"
        pytest.fail(missing) if REQUIRED else pytest.skip(missing)
    return AXE.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_grave(
    open_page: Open, exported: Any, axe: str, scheme: str
) -> None:
    held = [(made.recording(number), made.entries({"search": "found"})) for number in (1, 2)]
    shown = await open_page(exported(*held), color_scheme=scheme)
    # The page's policy forbids added scripts; what a test evaluates is none.
    await shown.page.evaluate(axe)
    found = {}
    for view in (*VIEWS, *PARTS):
        await drawn(shown, view)
        await shown.page.wait_for_function("() => document.getAnimations().length === 0")
        grave = await shown.page.evaluate(GRAVE)
        if grave:
            found[view] = grave
    assert found == {}


async def test_axe_would_find_something(open_page: Open, exported: Any, axe: str) -> None:
    shown = await open_page(exported((made.recording(), made.entries())))
    await shown.page.evaluate(axe)
    await shown.page.evaluate(
        "() => document.querySelector('main').append(document.createElement('img'))"
    )
    assert any(one.startswith("image-alt") for one in await shown.page.evaluate(GRAVE))
