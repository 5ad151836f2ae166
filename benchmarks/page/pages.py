"""The page as it was built and committed at a revision."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from caesura.runtime.recording.files import NAMES, BuiltPage

WORKING_TREE = "working tree"


@dataclass(frozen=True, slots=True)
class Built:
    """A built page, and the folder that its files are in."""

    revision: str
    folder: Path

    @property
    def page(self) -> BuiltPage:
        """Read the page."""
        return BuiltPage(*(self.folder.joinpath(name).read_text("utf-8") for name in NAMES))

    @property
    def kilobytes(self) -> float:
        """Return the size of its files."""
        return sum(self.folder.joinpath(name).stat().st_size for name in NAMES) / 1000


def page_of(revision: str, into: Path) -> Built:
    """Write the page of a revision of this repository into a folder of its own.

    `WORKING_TREE` takes the files as they are now. Raises `SystemExit` for an unknown revision, and
    for one without a page.
    """
    if revision == WORKING_TREE:
        name, folder = WORKING_TREE, Path("runtime/static").resolve()
        if not all(folder.joinpath(name).is_file() for name in NAMES):
            raise SystemExit(f"{folder} has no page: run `make ui` first")
        return Built(name, folder)
    short = _git("rev-parse", "--short", f"{revision}^{{commit}}").decode().strip()
    folder = into / short
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        folder.joinpath(name).write_bytes(_git("show", f"{short}:runtime/static/{name}"))
    return Built(short, folder)


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode().strip()
        raise SystemExit(f"git {' '.join(arguments)} failed: {said}; name a commit with a page")
    return done.stdout
