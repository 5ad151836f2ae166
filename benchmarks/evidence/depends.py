"""The files that a figure depends on, found by following imports, and what they were like.

Nothing is imported, and no history is needed: a result keeps a digest of its files for each room,
without comments, docstrings and the types of fields, and is compared with the files of today.
"""

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "caesura"
LINKED = ROOT / "src" / PACKAGE
UNREAD = ("benchmarks/evidence/",)
"""Folders that change how figures are shown, and none of the figures."""
DIGITS = 12


def files_of(modules: Iterable[str], rooms: Iterable[str], globs: Iterable[str] = ()) -> list[Path]:
    """Return the files of the modules and of all that they import, within the rooms, and the globs.

    Rooms and files are relative to the root. Raises `FileNotFoundError` for a module that is no
    file of this project, and for a glob that matches nothing.
    """
    allowed = tuple(f"{room}/" for room in rooms)
    found: set[Path] = set()
    ahead = []
    for name in modules:
        file = file_of(name)
        if file is None or not _is(file, name):
            raise FileNotFoundError(f"{name} is no module of this project")
        ahead.append(file)
    while ahead:
        path = ahead.pop()
        name = path.relative_to(ROOT).as_posix()
        if path in found or not name.startswith(allowed) or name.startswith(UNREAD):
            continue
        found.add(path)
        ahead += [file for each in imports(path) if (file := file_of(each)) is not None]
        beside = path.parent / "__init__.py"
        if beside.exists():
            ahead.append(beside)
    for pattern in globs:
        matches = {path for path in ROOT.glob(pattern) if path.is_file()}
        if not matches:
            raise FileNotFoundError(f"no file matches {pattern}")
        found |= matches
    return sorted(found)


def file_of(module: str) -> Path | None:
    """Return the file of a module of this project, or of the longest part of its name that is one.

    So a name that is taken from a module leads to that module.
    """
    parts = module.split(".")
    if parts[0] == PACKAGE:
        parts = parts[1:]
        if not parts or not (LINKED / parts[0]).is_symlink():
            return None
    elif parts[0] not in ("benchmarks", "tests", "training"):
        return None
    for count in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:count])
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                return file
    return None


def _is(file: Path, module: str) -> bool:
    """Return whether a file is this very module, and no package above it."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    named = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return module.removeprefix(f"{PACKAGE}.") == named


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Return the modules that a file imports anywhere, and the names that it takes from them."""
    package = path.relative_to(ROOT).parent.parts
    return tuple(_imported(ast.parse(path.read_text()), package))


def _imported(node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = package[: len(package) - child.level + 1] if child.level else ()
            module = ".".join((*above, *filter(None, [child.module])))
            yield from (f"{module}.{alias.name}" for alias in child.names)
        else:
            yield from _imported(child, package)


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """Return a digest of the files of each room, by its name."""
    rooms: dict[str, list[Path]] = {}
    for path in sorted(paths):
        rooms.setdefault(path.relative_to(ROOT).parts[0], []).append(path)
    return {room: _digest(of_room) for room, of_room in rooms.items()}


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the rooms whose files are not what they were."""
    return sorted(room for room in {*then, *now} if then.get(room) != now.get(room))


def _digest(paths: Iterable[Path]) -> str:
    told = hashlib.sha256()
    for path in paths:
        told.update(f"{path.relative_to(ROOT).as_posix()}\n".encode())
        told.update(contents(path))
    return told.hexdigest()[:DIGITS]


@cache
def contents(path: Path) -> bytes:
    """Return what a file holds; of Python what `meaning` leaves of it."""
    data = path.read_bytes()
    return meaning(data.decode()).encode() if path.suffix == ".py" else data


def meaning(source: str) -> str:
    """Return the lines of Python that do something; every version of Python gives the same.

    Types of fields and variables go too: records describe themselves to readers there.
    """
    source = _without_types(source)
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        # Strings that stand alone: docstrings, and those below an assignment.
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            and node.end_lineno is not None
        ):
            for row in range(node.lineno - 1, node.end_lineno):
                lines[row] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _without_types(source: str) -> str:
    """Return Python with a mark in place of each annotated assignment's type."""
    data = source.encode()
    begins = [0]
    for line in data.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    spans = [
        (
            begins[node.lineno - 1] + node.col_offset,
            begins[node.end_lineno - 1] + node.end_col_offset,
        )
        for each in ast.walk(ast.parse(source))
        if isinstance(each, ast.AnnAssign)
        for node in (each.annotation,)
        if node.end_lineno is not None and node.end_col_offset is not None
    ]
    for begin, end in sorted(spans, reverse=True):
        data = data[:begin] + b"..." + data[end:]
    return data.decode()
