"""What a sandbox changed, written to the user's folder, which no path or link leaves."""

import base64
import errno
import fnmatch
import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

MAX_BATCH_BYTES = 16 * 2**20
"""Of the files that are asked for at once, and so of one file."""
_NEVER = (".git",)
"""A repository's own folder holds programs that its owner's commands run."""
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """A user's folder. Files that another program changed since the copy are left alone.

    skip: patterns of names that are not written. copied_ns: when the folder was copied, in
    nanoseconds since 1970.
    """

    def __init__(self, place: str, skip: Sequence[str], copied_ns: int) -> None:
        self._place = place
        self._skip = (*skip, *_NEVER)
        self._copied_ns = copied_ns
        self._own: dict[str, int] = {}
        """When files were changed that were written here, in nanoseconds."""

    def batches(
        self, changed: Iterable[tuple[str, int]], refused: dict[str, str]
    ) -> Iterator[list[str]]:
        """Yield the paths to write, in parts of a bounded size; add the others to `refused`."""
        batch: list[str] = []
        total = 0
        for path, size in changed:
            if self._is_skipped(path):
                refused[path] = "its name is skipped"
            elif size > MAX_BATCH_BYTES:
                refused[path] = f"it has {size} bytes"
            else:
                if batch and total + size > MAX_BATCH_BYTES // 2:
                    yield batch
                    batch, total = [], 0
                batch.append(path)
                total += size
        if batch:
            yield batch

    def write(self, packed: str) -> dict[str, str]:
        """Write files, a line of JSON for each; return why some were not, by path. Blocking."""
        refused = {}
        for line in packed.splitlines():
            file = json.loads(line)
            path = str(file["path"])
            if "data" not in file:
                refused[path] = "it is no file" if not file["link"] else "it is a link"
            elif (why := self._put(path, base64.b64decode(file["data"]), int(file["mode"]))) != "":
                refused[path] = why
        return refused

    def remove(self, paths: Iterable[str]) -> dict[str, str]:
        """Remove files; return why some were not removed, by path. Blocking."""
        refused = {}
        for path in paths:
            if not self._is_skipped(path) and (why := self._removed(path)) != "":
                refused[path] = why
        return refused

    def _is_skipped(self, path: str) -> bool:
        names = path.split("/")
        return any(fnmatch.fnmatchcase(name, each) for name in names for each in self._skip)

    def _put(self, path: str, data: bytes, mode: int) -> str:
        """Write one file; return why it could not be written, or an empty text."""
        try:
            parent, name = self._parent_of(path, make=True)
        except OSError as error:
            return _why(error)
        part = f".{secrets.token_hex(8)}.part"
        try:
            if self._is_foreign(parent, name, path):
                return "somebody else changed it"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
            with os.fdopen(os.open(part, flags, mode & 0o755 | 0o600, dir_fd=parent), "wb") as file:
                file.write(data)
                if os.geteuid() == 0:
                    owner = os.fstat(parent)
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.replace(part, name, src_dir_fd=parent, dst_dir_fd=parent)
            self._own[path] = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mtime_ns
            return ""
        except OSError as error:
            with suppress(OSError):
                os.unlink(part, dir_fd=parent)
            return _why(error)
        finally:
            os.close(parent)

    def _removed(self, path: str) -> str:
        try:
            parent, name = self._parent_of(path, make=False)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return _why(error)
        try:
            if self._is_foreign(parent, name, path):
                return "somebody else changed it"
            os.unlink(name, dir_fd=parent)
            return ""
        except FileNotFoundError:
            return ""
        except OSError as error:
            return _why(error)
        finally:
            os.close(parent)

    def _parent_of(self, path: str, *, make: bool) -> tuple[int, str]:
        """Return a descriptor of a file's folder, to which no link led, and the file's name."""
        *folders, name = path.split("/")
        if any(each in ("", ".", "..") for each in (*folders, name)):
            raise OSError(errno.EINVAL, "it is not in the folder")
        parent = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK)
        for folder in folders:
            try:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=parent)
                flags = os.O_RDONLY | os.O_DIRECTORY | _NO_LINK
                below = os.open(folder, flags, dir_fd=parent)
            finally:
                os.close(parent)
            parent = below
        return parent, name

    def _is_foreign(self, parent: int, name: str, path: str) -> bool:
        """Return whether somebody else changed a file, or put something else in its place."""
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if path in self._own:
            return found.st_mtime_ns != self._own[path]
        return not stat.S_ISREG(found.st_mode) or found.st_mtime_ns > self._copied_ns


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a link or a file stands in its way"
    return error.strerror or str(error)
