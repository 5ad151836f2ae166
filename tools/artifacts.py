"""Files that tools make, such as pictures and sounds. The model gets their names, not the bytes.

A file's name is the digest of its bytes. So the same file is stored once, its name can be cached
for ever, and other names cannot be guessed. The store is bounded: it deletes the files that were
written or served longest ago first. Several processes may share a directory. An empty file in the
folder `OWNERS` says that the clients of an API key have made a file.
"""

import hashlib
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from caesura.tools.errors import ToolError

LOG = logging.getLogger(__name__)

NAME = re.compile(r"[0-9a-f]{24}\.[a-z0-9]{1,5}")
MEDIA_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "webp": "image/webp",
    "svg": "image/svg+xml",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "txt": "text/plain",
    "json": "application/json",
}
DEFAULT_MAX_BYTES = 2 * 2**30
DEFAULT_MAX_FILE_BYTES = 64 * 2**20
URL_PREFIX = "/artifacts/"
OWNERS = "owners"
_PART = ".part-"
_PART_SECONDS = 3600.0
"""An unfinished file of this age is deleted: its writer must have been killed."""
_PUTS_PER_COUNT = 256
"""The directory is counted again after this many writes: other processes write to it too."""


class ArtifactError(ToolError):
    """A file could not be stored. The message is for the model and for the log."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One stored file."""

    name: str
    """The digest of the file's bytes and a suffix: `3f2a....png`."""
    media_type: str
    size_bytes: int
    path: Path

    @property
    def url(self) -> str:
        """Path of the URL under which the endpoint serves the file."""
        return URL_PREFIX + self.name


class ArtifactStore:
    """A directory of artifacts, created at the first write.

    max_bytes: limit for all files together. max_file_bytes: limit for one file. The store leaves
    alone files that it did not write.
    """

    def __init__(
        self,
        directory: Path,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_file_bytes: int = DEFAULT_MAX_FILE_BYTES,
    ) -> None:
        self.directory = directory
        self._max_bytes = max_bytes
        self._max_file_bytes = max_file_bytes
        self._puts = 0
        self._total = 0

    def put(self, data: bytes, suffix: str) -> Artifact:
        """Store bytes under their digest.

        Blocking: call it in a thread. Raises ArtifactError where the file is too large, the disk is
        full or the directory is not writable. Raises KeyError for a suffix not in MEDIA_TYPES.
        """
        media_type = MEDIA_TYPES[suffix]
        if len(data) > self._max_file_bytes:
            raise ArtifactError(
                f"the file has {len(data)} bytes; at most {self._max_file_bytes} are allowed"
            )
        name = f"{hashlib.sha256(data).hexdigest()[:24]}.{suffix}"
        path = self.directory / name
        try:
            if _touched(path) != len(data):
                self.directory.mkdir(parents=True, exist_ok=True)
                _write(path, data)
                self._make_room(path, len(data))
        except OSError as error:
            raise ArtifactError(f"the file cannot be stored: {error.strerror or error}") from error
        return Artifact(name, media_type, len(data), path)

    def get(self, name: str) -> Artifact | None:
        """Return the file of that name, or None; `name` may be any text. Blocks briefly."""
        suffix = name.rpartition(".")[2]
        if not NAME.fullmatch(name) or suffix not in MEDIA_TYPES:
            return None
        path = self.directory / name
        size = _touched(path)
        return None if size is None else Artifact(name, MEDIA_TYPES[suffix], size, path)

    def belongs_to(self, artifact: Artifact, tenant: str) -> bool:
        """Return whether clients of an API key, by its digest, have made the file."""
        return _mark_of(artifact, tenant).is_file()

    def _make_room(self, newest: Path, size: int) -> None:
        """Delete the files that were used longest ago until the rest fit.

        The directory may hold many files, so it is listed only where a deletion may be needed.
        """
        self._total += size
        self._puts += 1
        if self._total <= self._max_bytes and self._puts % _PUTS_PER_COUNT != 1:
            return
        files = sorted(_files(self.directory))
        total = sum(size for _, size, _ in files)
        # Free a tenth more than needed, so that a full directory is not listed at every write.
        wanted = total if total <= self._max_bytes else self._max_bytes * 9 // 10
        for _, size, path in files:
            if total <= wanted:
                break
            if path != newest:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                    total -= size
        self._total = total
        _forget_owners(self.directory)


def note_owner(artifacts: Iterable[Artifact], tenant: str) -> None:
    """Note that clients of an API key, by its digest, have made files.

    Blocking: call it in a thread. Where a note cannot be written, the log says so, and only a key
    that may see everybody's files finds the file.
    """
    for artifact in artifacts:
        mark = _mark_of(artifact, tenant)
        try:
            mark.parent.mkdir(exist_ok=True)
            mark.touch()
        except OSError as error:
            LOG.warning("whose file %s is cannot be noted: %s", artifact.name, error)


def _mark_of(artifact: Artifact, tenant: str) -> Path:
    return artifact.path.parent / OWNERS / f"{artifact.name}.{tenant}"


def _forget_owners(directory: Path) -> None:
    """Delete the notes about files that are gone."""
    with suppress(OSError), os.scandir(directory / OWNERS) as entries:
        for entry in entries:
            if not (directory / entry.name.rpartition(".")[0]).exists():
                Path(entry.path).unlink(missing_ok=True)


def _touched(path: Path) -> int | None:
    """Return the size of a file and mark it as used now; None where the file is missing.

    The access time records the use: a changed modification time would make clients fetch again.
    """
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return None
        os.utime(path, ns=(time.time_ns(), found.st_mtime_ns))
    except OSError:
        return None
    return found.st_size


def _files(directory: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield each file's last use, size and path; delete old unfinished files on the way."""
    now = time.time()
    with os.scandir(directory) as entries:
        for entry in entries:
            path = directory / entry.name
            with suppress(OSError):  # another process may have deleted it
                found = entry.stat(follow_symlinks=False)
                if NAME.fullmatch(entry.name):
                    yield max(found.st_atime, found.st_mtime), found.st_size, path
                elif entry.name.startswith(_PART) and now - found.st_mtime > _PART_SECONDS:
                    path.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, even while another process writes the same file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_PART)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
