"""What `files` does in a sandbox: it reads one request, and writes one answer.

It runs there as a program of its own, and imports the standard library alone. It may do no more
than other programs of the sandbox; that it follows no link out of the working folder keeps the
model from taking another file for one of its own.
"""

import base64
import fnmatch
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

MAX_LISTED = 400
MAX_FOUND = 100
MAX_FILE_BYTES = 16 * 2**20
MAX_READ_CHARACTERS = 24_000
MAX_LINE_CHARACTERS = 2_000
_HIDDEN = (".git", "__pycache__", "node_modules", ".venv")


class Refused(Exception):
    """What the model asked for cannot be done; the message says why."""


def place_of(path: str) -> str:
    """Return the real path of a file or folder of the working folder."""
    root = os.path.realpath(os.getcwd())
    place = os.path.realpath(os.path.join(root, path))
    if place != root and not place.startswith(f"{root}/"):
        raise Refused(f"{path!r} is not in the working folder; name a path in it, such as 'a/b.py'")
    return place


def name_of(place: str) -> str:
    """Return the name of a place, as the model writes it."""
    return os.path.relpath(place, os.path.realpath(os.getcwd()))


def text_in(path: str) -> str:
    """Return the text of a file."""
    data = bytes_in(path, MAX_FILE_BYTES)
    if b"\0" in data[:8192]:
        raise Refused(f"{path!r} is no text: it has {len(data)} bytes with zeros among them")
    return data.decode("utf-8", "replace")


def bytes_in(path: str, most: int) -> bytes:
    """Return the bytes of a file."""
    place = place_of(path)
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise Refused(f"there is no {path!r}{_near(place)}") from None
    with os.fdopen(descriptor, "rb") as file:
        known = os.fstat(file.fileno())
        if not stat.S_ISREG(known.st_mode):
            raise Refused(f"{path!r} is no file")
        if known.st_size > most:
            raise Refused(f"{path!r} has {known.st_size} bytes; at most {most} can be read")
        return file.read(most + 1)


def _near(place: str) -> str:
    """Return where a file of that name lies instead."""
    found = [
        name_of(each) for each in _files(".") if os.path.basename(each) == os.path.basename(place)
    ]
    return f"; did you mean {', '.join(map(repr, found[:3]))}?" if found else ""


def _files(path: str) -> Iterator[str]:
    """Yield the files beneath a place, links left out."""
    top = place_of(path)
    if os.path.isfile(top):
        yield top
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(each for each in folders if each not in _HIDDEN)
        for name in sorted(names):
            place = os.path.join(folder, name)
            if not os.path.islink(place) and os.path.isfile(place):
                yield place


def list_files(request: dict[str, Any]) -> str:
    """Return the names and sizes of files."""
    path = request.get("path") or "."
    place = place_of(path)
    if not os.path.exists(place):
        raise Refused(f"there is no {path!r}{_near(place)}")
    pattern = request.get("pattern") or "*"
    lines = []
    for count, each in enumerate(_files(path)):
        if fnmatch.fnmatch(name_of(each), pattern) or fnmatch.fnmatch(
            os.path.basename(each), pattern
        ):
            lines.append(f"{name_of(each)} ({os.path.getsize(each)} bytes)")
        if count > 50_000:
            break
    if len(lines) > MAX_LISTED:
        lines = [
            *lines[:MAX_LISTED],
            f"[{len(lines) - MAX_LISTED} more; name a folder or a pattern]",
        ]
    return "\n".join(lines) or "no files"


def read(request: dict[str, Any]) -> str:
    """Return lines of a file, with their numbers."""
    path = _needed(request, "path")
    lines = text_in(path).splitlines()
    first, last = request.get("first_line") or 1, request.get("last_line") or len(lines)
    if not 1 <= first <= max(len(lines), 1) or last < first:
        raise Refused(
            f"{path!r} has the lines 1 to {len(lines)}; there are no lines {first} to {last}"
        )
    shown, size = [], 0
    for number, line in enumerate(lines[first - 1 : last], first):
        if len(line) > MAX_LINE_CHARACTERS:
            line = f"{line[:MAX_LINE_CHARACTERS]} [cut: {len(line)} characters in all]"
        size += len(line) + 8
        if size > MAX_READ_CHARACTERS:
            rest = f"{number} to {min(last, len(lines))}"
            shown.append(f"[the lines {rest} are left out; read them by first_line]")
            break
        shown.append(f"{number}\t{line}")
    return "\n".join(shown) or "the file is empty"


def write(request: dict[str, Any]) -> str:
    """Write a whole file."""
    path, text = _needed(request, "path"), _needed(request, "text")
    place = place_of(path)
    if os.path.isdir(place):
        raise Refused(f"{path!r} is a folder")
    was_there = os.path.exists(place)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    _store(place, text)
    return (
        f"{'replaced' if was_there else 'wrote'} {name_of(place)}, {len(text.splitlines())} lines"
    )


def edit(request: dict[str, Any]) -> str:
    """Replace a text that stands once in a file, or everywhere if the request says so."""
    path, old, new = (_needed(request, name) for name in ("path", "old", "new"))
    if not old:
        raise Refused("old is empty: give the text to replace, or use the action write")
    data = bytes_in(path, MAX_FILE_BYTES)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{path!r} is not UTF-8 text") from None
    count = text.count(old)
    if not count and "\r\n" in text and "\n" in old and "\r\n" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        count = text.count(old)
    if not count:
        raise Refused(f"old does not stand in {path!r}: it must agree in every character")
    if count > 1 and not request.get("all"):
        lines = [
            text[: found.start()].count("\n") + 1 for found in re.finditer(re.escape(old), text)
        ]
        places = ", ".join(map(str, lines[:10]))
        raise Refused(
            f"old stands {count} times in {path!r} (lines {places}): give more of it, or all"
        )
    _store(place_of(path), text.replace(old, new))
    return f"replaced {count} {'place' if count == 1 else 'places'} in {name_of(place_of(path))}"


def search(request: dict[str, Any]) -> str:
    """Return the lines that match a regular expression, with their files and numbers."""
    try:
        pattern = re.compile(_needed(request, "pattern"))
    except re.error as error:
        raise Refused(f"pattern is no regular expression: {error}") from None
    found: list[str] = []
    for place in _files(request.get("path") or "."):
        try:
            lines = text_in(name_of(place)).splitlines()
        except (Refused, OSError):
            continue
        for number, line in enumerate(lines, 1):
            if pattern.search(line):
                found.append(f"{name_of(place)}:{number}: {line.strip()[:300]}")
        if len(found) > MAX_FOUND:
            return "\n".join([*found[:MAX_FOUND], "[more were found; search for less]"])
    return "\n".join(found) or "nothing was found"


def fetch(request: dict[str, Any]) -> str:
    """Return a file's bytes as base64, for the host."""
    return base64.b64encode(bytes_in(request["path"], request["most"])).decode()


def pack(request: dict[str, Any]) -> str:
    """Return files with their modes, a line for each, for the host; links and others without."""
    lines = []
    for path in request["paths"]:
        told: dict[str, Any] = {"path": path, "link": os.path.islink(path)}
        with suppress(Refused, OSError):
            if not told["link"]:
                data = bytes_in(path, request["most"])
                told |= {"mode": os.stat(path).st_mode & 0o777}
                told |= {"data": base64.b64encode(data).decode()}
        lines.append(json.dumps(told))
    return "\n".join(lines)


ACTIONS = {"list": list_files, "read": read, "write": write, "edit": edit, "search": search}


def _needed(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise Refused(f"the action {request['action']} needs {name}")
    return value


def _store(place: str, text: str) -> None:
    with open(place, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def main() -> None:
    """Answer the request on the standard input."""
    request = json.load(sys.stdin)
    try:
        told = {"text": {**ACTIONS, "fetch": fetch, "pack": pack}[request["action"]](request)}
    except Refused as error:
        told = {"refused": str(error)}
    except OSError as error:
        told = {"refused": f"{error.strerror or error}: {request.get('path')!r}"}
    # The text is cut in its middle where it is too long, and JSON would not survive that.
    sys.stdout.write("".join(f"{kind}\n{text}" for kind, text in told.items()))


if __name__ == "__main__":
    main()
