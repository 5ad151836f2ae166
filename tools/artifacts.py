"""Files that tools make: pictures, sounds. The model gets a name and never the bytes.

A file's name is the digest of its bytes, so that the same file is stored once, a name can be
served and cached for ever, and nobody can guess another's. The store is bounded: the files that
were written or served longest ago go first.
"""

import hashlib
import os
import re
import tempfile
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

    max_bytes: of all files together; max_file_bytes: of one.
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

    def put(self, data: bytes, suffix: str) -> Artifact:
        """Store bytes under their digest. `suffix` is a key of MEDIA_TYPES.

        Blocking: call it in a thread. Raises ArtifactError for a file that is too large, and when
        the disk is full or may not be written.
        """
        if len(data) > self._max_file_bytes:
            raise ArtifactError(
                f"the file has {len(data)} bytes, and {self._max_file_bytes} are allowed"
            )
        name = f"{hashlib.sha256(data).hexdigest()[:24]}.{suffix}"
        path = self.directory / name
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if path.exists():
                os.utime(path)
            else:
                _write(path, data)
                self._make_room(path)
        except OSError as error:
            raise ArtifactError(f"the file cannot be stored: {error.strerror}") from error
        return Artifact(name, MEDIA_TYPES[suffix], len(data), path)

    def get(self, name: str) -> Artifact | None:
        """The file of that name, or None; any text may be asked for."""
        suffix = name.rpartition(".")[2]
        if not NAME.fullmatch(name) or suffix not in MEDIA_TYPES:
            return None
        path = self.directory / name
        try:
            size = path.stat().st_size
            os.utime(path)
        except OSError:
            return None
        return Artifact(name, MEDIA_TYPES[suffix], size, path)

    def _make_room(self, newest: Path) -> None:
        """Delete the files that were used longest ago until the rest fit."""
        files = [(each.stat(), each) for each in self.directory.iterdir() if each != newest]
        total = newest.stat().st_size + sum(stat.st_size for stat, _ in files)
        for stat, path in sorted(files, key=lambda each: each[0].st_mtime):
            if total <= self._max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= stat.st_size


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, whoever else writes it at the same time."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
