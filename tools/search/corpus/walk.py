"""Expands paths of files and directories into the files to index."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from caesura.tools.search.reading import SUFFIXES


def files_at(paths: Iterable[Path], others: Counter[str] | None = None) -> dict[Path, str]:
    """Return the files, each with its name in results.

    A file given by its own path is always included, under its file name. A directory yields its
    files of readable formats, named by their path within it. Names that begin with a dot are
    skipped, and links to directories or to files elsewhere are not followed. `others` counts what
    was left out of directories, the unreadable files by suffix.
    """
    found: dict[Path, str] = {}
    for path in paths:
        place = Path(os.path.realpath(path))  # unlike `resolve`, it takes a loop of links
        if not place.is_dir():
            found.setdefault(place, place.name)
            continue
        for directory, inner, names in os.walk(place):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            for name in sorted(names):
                file = Path(directory, name)
                if name.startswith("."):
                    continue
                if file.is_symlink() and not Path(os.path.realpath(file)).is_relative_to(place):
                    if others is not None:
                        others["links out of the directory"] += 1
                elif file.suffix.lower() in SUFFIXES:
                    found.setdefault(file, str(file.relative_to(place.parent)))
                elif others is not None:
                    others[file.suffix.lower() or "without a suffix"] += 1
    return found
