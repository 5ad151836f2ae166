"""Files that tools make: pictures, sounds. The model gets a name and never the bytes.

A file's name is the digest of its bytes, so that the same file is stored once, a name can be
served and cached for ever, and nobody can guess another's. The store is bounded: the files that
were written or served longest ago go first. Several processes may share a directory.
"""

import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
_PART = ".part-"
_PART_SECONDS = 3600.0
"""After so long an unfinished file is one whose writer was killed."""
_PUTS_PER_COUNT = 256
"""The directory is counted anew after so many files, since other processes write to it too."""


class ArtifactError(RuntimeError):
    """A file could not be stored. The message is for the model and for the log."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One stored file."""

    name: str
    """The digest of its bytes and a suffix: `3f2a....png`."""
    media_type: str
    size_bytes: int
    path: Path

    @property
    def url(self) -> str:
        """Where the endpoint serves it."""
        return URL_PREFIX + self.name


class ArtifactStore:
    """A directory of such files, made at the first write.

    max_bytes: of all files together; max_file_bytes: of one. Files in the directory that are none
    of the store's are left alone.
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

        Blocking: call it in a thread. Raises ArtifactError for a file that is too large, and when
        the disk is full or may not be written; KeyError for a suffix that is not in MEDIA_TYPES.
        """
        media_type = MEDIA_TYPES[suffix]
        if len(data) > self._max_file_bytes:
            raise ArtifactError(
                f"the file has {len(data)} bytes, and {self._max_file_bytes} are allowed"
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
        """The file of that name, or None; any text may be asked for. Blocking, briefly."""
        suffix = name.rpartition(".")[2]
        if not NAME.fullmatch(name) or suffix not in MEDIA_TYPES:
            return None
        path = self.directory / name
        size = _touched(path)
        return None if size is None else Artifact(name, MEDIA_TYPES[suffix], size, path)

    def _make_room(self, newest: Path, size: int) -> None:
        """Delete the files that were used longest ago until the rest fit.

        The directory is listed only where that may be needed: it can hold many files.
        """
        self._total += size
        self._puts += 1
        if self._total <= self._max_bytes and self._puts % _PUTS_PER_COUNT != 1:
            return
        files = sorted(_files(self.directory))
        total = sum(size for _, size, _ in files)
        # A tenth more than needed, so that a full directory is not listed at every write.
        wanted = total if total <= self._max_bytes else self._max_bytes * 9 // 10
        for _, size, path in files:
            if total <= wanted:
                break
            if path != newest:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                    total -= size
        self._total = total


def _touched(path: Path) -> int | None:
    """The size of a file that is used now, or None if there is none.

    The time of access says so: a changed time of modification would make clients fetch it again.
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
    """The store's files: when each was used, its size, its path; old unfinished ones go."""
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
    """Write a file whole or not at all, whoever else writes it at the same time."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_PART)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
