"""Charts of Vega-Lite's own gallery are drawn as Vega-Lite draws them, with the same look."""

import copy
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from caesura.tools.picture.vegalite import prepared, styled

GALLERY: dict[str, Any] = json.loads(Path(__file__).with_name("gallery.json").read_text())["specs"]


def drawn(spec: dict[str, Any]) -> Counter[str]:
    """Return how many there are of each mark, axis and legend, and the text that is written."""
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    roles = re.findall(r'aria-roledescription="([^"]*)"', svg)
    return Counter([*roles, *re.findall(r'class="mark-(\w+) role-mark', svg)])


@pytest.mark.parametrize("name", GALLERY)
def test_a_chart_of_the_gallery_is_drawn_as_vega_lite_draws_it(name: str) -> None:
    ours = drawn(prepared(copy.deepcopy(GALLERY[name]), 5000))
    assert ours == drawn(styled(GALLERY[name]))
    assert sum(ours.values()) > 1, "it holds marks"
