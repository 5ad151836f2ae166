"""vLLM's own tests: found on the package index, checked, unpacked apart from its sources.

pip cannot be asked for this file: `pip download` runs the sdist's build to learn its metadata.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from http.client import HTTPException
from pathlib import Path

from index import Index, indexes
from rich.progress import wrap_file

# A release never changes, so a hash kept here guards against the index as well.
PINNED = {
    "0.32.0": "d2c957d5eee3d0985012151315ddc62cbe0cd368fc96a5fc3510438d9dddf2ad",
    "0.33.0": "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112",
}
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "vllm-tests"


class HarnessError(Exception):
    """A reason why the tests cannot be run, with its mend."""


def unpack(sdist: Path, version: str, wanted: tuple[str, ...], target: Path) -> None:
    """Replace `target` by the wanted folders (`name/`) and files of an sdist.

    HarnessError: the file cannot be unpacked, or the first of the wanted is not in it.
    """
    top = f"vllm-{version}"
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with tarfile.open(sdist) as tar:
            starts = tuple(f"{top}/{name}" for name in wanted)
            keep = [member for member in tar if member.name.startswith(starts)]
            tar.extractall(part, members=keep, filter="data")
    except (OSError, tarfile.TarError) as error:
        reason = str(error).partition("\n")[0]
        raise HarnessError(f"cannot unpack {sdist}: {reason}") from error
    if not (part / top / wanted[0]).exists():
        raise HarnessError(f"{sdist} is not vLLM {version}'s sdist: no {top}/{wanted[0]} in it")
    shutil.rmtree(target, ignore_errors=True)
    (part / top).rename(target)
    part.rmdir()


def download(version: str, directory: Path) -> Path:
    """Return vLLM's sdist, downloaded into `directory` unless it is there already."""
    name = f"vllm-{version}.tar.gz"
    target = directory / name
    if target.exists() and PINNED.get(version) in (None, _digest(target)):
        return target
    failures = []
    for index in indexes():
        try:
            link, digest = index.find("vllm", name)
            _fetch(index, link, target, PINNED.get(version, digest))
        except (OSError, HTTPException, LookupError) as error:
            failures.append(f"  {index.url}: {error}")
        else:
            return target
    raise HarnessError(
        f"cannot get {name} from any package index:\n" + "\n".join(failures) + "\n"
        "Mend: go online, or point pip at an index that has it (PIP_INDEX_URL or `pip config set "
        f"global.index-url URL`), or fetch {name} elsewhere and pass it with --sdist FILE."
    )


def _fetch(index: Index, link: str, target: Path, digest: str | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with index.open(link) as response, part.open("wb") as out:
        size = int(response.headers.get("Content-Length") or 0)
        with wrap_file(response, total=size, description=target.name) as shown:
            shutil.copyfileobj(shown, out, 1 << 20)
    found = _digest(part)
    if digest is None or found != digest:
        part.unlink()
        raise HarnessError(
            f"{target.name} has sha256 {found}, expected {digest or 'one that the index names'}.\n"
            "Mend: try again; if it stays so, do not trust this index."
        )
    part.replace(target)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
