"""The public names of `caesura` and its public modules, with what their docstrings say first.

The site has the whole docstrings in their places.
"""

from importlib import import_module
from pathlib import Path

import caesura
from tests.reference.markdown import code, first_line, page, table

ABOUT = (
    "These are all public names. Names of other modules may change between releases. [The"
    " guide](../guides/sdk/README.md) shows how they are used. The site that `make docs` builds has"
    " each name's parameters and methods here."
)


def modules() -> list[str]:
    """Return the names of the modules that are public: those beside the package's own file."""
    files = Path(caesura.__file__).parent.glob("*.py")
    names = [f"caesura.{file.stem}" for file in files if not file.stem.startswith("_")]
    return ["caesura", *sorted(name for name in names if hasattr(import_module(name), "__all__"))]


def sdk_page() -> str:
    """Return the page."""
    parts: list[str] = []
    for module in modules():
        found = import_module(module)
        names = [name for name in found.__all__ if name != "__version__"]
        rows = [[code(name), first_line(getattr(found, name))] for name in names]
        parts.append(f"## `from {module} import …`\n\n{table(('name', 'what it is'), rows)}")
        parts += [f"<!-- ::: {module}.{name} -->\n\n" for name in names]
    return page("SDK", ABOUT, *parts)
