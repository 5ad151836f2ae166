"""The page knows the policies by name where no server tells it."""

import re
from pathlib import Path

from caesura.runtime.whatif.choice import NAMES

SOURCE = Path(__file__).parents[3] / "ui/src/whatif/server.ts"


def test_the_page_names_the_policies_that_there_are() -> None:
    told = re.search(r"KNOWN[^{]*\{(.*?)\};", SOURCE.read_text(), re.DOTALL)
    assert told is not None
    for what, names in NAMES.items():
        found = re.search(rf"{what}: \[(.*?)\]", told[1])
        assert found is not None
        assert sorted(re.findall(r'"([^"]+)"', found[1])) == sorted(names)
