"""What pyproject.toml cannot say of a build: its commit, and the addresses of its pages.

CAESURA_REPOSITORY=https://github.com/OWNER/NAME names where the repository is published. A build
with it has links to the pages of its version; without it, README's links to files are plain text.
CAESURA_COMMIT names the commit of a build in which git does not know it.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "src" / "caesura"))
from distribution import COMMIT_FILE, __version__, commit  # noqa: E402 - alone, without the package

LINK = re.compile(r"(!?)\[((?:[^\[\]]|!?\[[^\]]*\])*)\]\((?!https?://|#)([^)\s]+)\)")
"""A link or a picture, in Markdown, whose target is a file of the repository."""


def repository() -> str | None:
    """Return the address of the published repository, or None if none is named."""
    address = os.environ.get("CAESURA_REPOSITORY", "").rstrip("/")
    if address and not re.fullmatch(r"https://[^/\s]+/\S+", address):
        sys.exit(
            f"CAESURA_REPOSITORY is {address!r}, and must be like https://github.com/OWNER/NAME"
        )
    return address or None


def description(text: str, address: str | None) -> str:
    """Return README's text with absolute links to the files of this version, or without links."""

    def absolute(found: re.Match[str]) -> str:
        picture, shown, target = found.groups()
        if address is None:
            return "" if picture else shown
        kind = "raw" if picture else "blob"
        return f"{picture}[{shown}]({address}/{kind}/v{__version__}/{target})"

    return LINK.sub(absolute, text)


def urls(address: str | None) -> dict[str, str]:
    """Return the addresses in the metadata."""
    if address is None:
        return {}
    pages = f"{address}/blob/v{__version__}"
    return {
        "Repository": address,
        "Documentation": f"{pages}/docs",
        "Changelog": f"{pages}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def built_commit() -> str | None:
    """Return the commit that git, an earlier build or the caller names, in this order, or None."""
    known = commit() or os.environ.get("CAESURA_COMMIT") or None
    if known is not None and not re.fullmatch(r"[0-9a-f]{7,40}(\+changes)?", known):
        sys.exit(
            f"CAESURA_COMMIT is {known!r}, and must be like 0123456789ab or 0123456789ab+changes"
        )
    return known


def write_commit(package: Path) -> None:
    """Write the commit into a built package, where it is known."""
    if known := built_commit():
        written = package / COMMIT_FILE
        written.unlink(missing_ok=True)  # it may be a hard link to a file of the sources
        written.write_text(f"{known}\n")


class Build(build_py):
    """Builds the package anew, with its commit; the files of an older build are in no wheel."""

    def run(self) -> None:
        """Copy the modules."""
        package = Path(self.build_lib, "caesura")
        if not self.editable_mode:
            shutil.rmtree(package, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            write_commit(package)


class Source(sdist):
    """Packs the sources, with their commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the sources into the folder that is packed."""
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir, "src", "caesura"))


if __name__ == "__main__":
    home = repository()
    setup(
        long_description=description((ROOT / "README.md").read_text(), home),
        long_description_content_type="text/markdown",
        project_urls=urls(home),
        cmdclass={"build_py": Build, "sdist": Source},
    )
