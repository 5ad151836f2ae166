"""Which files are meant by the files and directories that somebody names."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from caesura.tools.search.reading import SUFFIXES


def files_at(paths: Iterable[Path], others: Counter[str] | None = None) -> dict[Path, str]:
    """The files, each with its name in results; files under directories where they can be read.

    A file that is named itself is always among them, and is called by its name; one under a
    directory by its path from that directory on. What begins with a dot is left out, and links to
    directories are not followed. `others` counts, by suffix, the files under directories that
    cannot be read.
    """
    found: dict[Path, str] = {}
    for path in paths:
        place = path.absolute().resolve()
        if not place.is_dir():
            found.setdefault(place, place.name)
            continue
        for directory, inner, names in os.walk(place):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            for name in sorted(names):
                file = Path(directory, name)
                if name.startswith("."):
                    continue
                if file.suffix.lower() in SUFFIXES:
                    found.setdefault(file, str(file.relative_to(place.parent)))
                elif others is not None:
                    others[file.suffix.lower() or "without a suffix"] += 1
    return found
