"""The public names of `caesura`, with what their docstrings say first.

The site has the whole docstrings in their places.
"""

import caesura
from tests.reference.markdown import code, first_line, page, table

ABOUT = (
    "These are all public names: `from caesura import Agent`. Names of other modules may change"
    " between releases. [The guide](../guides/sdk/README.md) shows how they are used. The site that"
    " `make docs` builds has each name's parameters and methods here."
)


def sdk_page() -> str:
    """Return the page."""
    names = list(caesura.__all__)
    rows = [[code(name), first_line(getattr(caesura, name))] for name in names]
    parts = [f"<!-- ::: caesura.{name} -->\n\n" for name in names]
    return page("SDK", ABOUT, table(("name", "what it is"), rows), *parts)
