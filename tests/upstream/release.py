"""The Python sources of another release of vLLM than the installed one, ready to be imported.

vLLM's scheduler is pure Python, and a release's sdist has it beside its tests. Laid before the
installed packages on the path, it runs on the torch and the libraries of the CPU build. The sdist
holds nothing compiled: no engine can be started on it, and nothing here stands in for kernels.
"""

from __future__ import annotations

import sys
from pathlib import Path

from source import CACHE, HarnessError, download, unpack

PLATFORM = "cpu"
"""vLLM takes its platform from the local part of its package's version."""


def sources(release: str, sdist: Path | None = None) -> Path:
    """Return the directory that `vllm` of this release is imported from, unpacked if need be.

    HarnessError: the sdist cannot be had, or is not of this release.
    """
    root = CACHE / f"{release}-sources"
    version = f"{release}+{PLATFORM}"
    about = root / f"vllm-{version}.dist-info" / "METADATA"
    if sdist is None and about.exists():
        return root
    unpack(sdist or download(release, CACHE), release, ("vllm/", "PKG-INFO"), root)
    found = (root / "PKG-INFO").read_text()
    changed = found.replace(f"\nVersion: {release}\n", f"\nVersion: {version}\n", 1)
    if changed == found:
        raise HarnessError(f"PKG-INFO in the sdist of vLLM {release} names another version")
    about.parent.mkdir()
    about.write_text(changed)
    return root


if __name__ == "__main__":
    try:
        print(sources(sys.argv[1]))
    except HarnessError as error:
        sys.exit(f"error: {error}")
