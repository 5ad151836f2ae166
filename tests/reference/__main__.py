"""Generate the pages of docs/reference that come from the code: `python -m tests.reference`.

`--check` writes nothing, and exits 1 if a page is stale.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.reference.errors import errors_page
from tests.reference.metrics import metrics_page
from tests.reference.options import options_page
from tests.reference.routes import openapi, routes_page
from tests.reference.sdk import sdk_page
from tests.reference.settings import settings_page, toml_page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "options.md": options_page,
    "settings.md": settings_page,
    "caesura-toml.md": toml_page,
    "metrics.md": metrics_page,
    "routes.md": routes_page,
    "openapi.json": openapi,
    "sdk.md": sdk_page,
    "errors.md": errors_page,
}


def main(check: bool) -> int:
    """Write the pages that differ, or name them; return the exit status."""
    stale = 0
    for name, make in PAGES.items():
        file, text = FOLDER / name, make()
        if file.exists() and file.read_text() == text:
            continue
        stale += 1
        if check:
            print(f"{file} differs from the code: run `make reference`", file=sys.stderr)
        else:
            file.write_text(text)
            print(f"wrote {file}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    sys.exit(main(parser.parse_args().check))
