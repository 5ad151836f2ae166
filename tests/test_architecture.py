"""The shape of the project: who may import whom, and how large a file may grow."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = (
    "runtime",
    "tools",
    "intercept",
    "scheduler",
    "simulator",
    "planning",
    "stores",
    "processes",
)
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

INTERCEPT = {"intercept", "intercept/calls", "intercept/kv"}
# Room (the longest match wins) -> what of caesura it may import.
MAY_IMPORT = {
    "intercept": {"intercept"},
    "intercept/calls": {"intercept", "intercept/calls"},
    "intercept/kv": {"intercept", "intercept/calls", "intercept/kv"},
    "stores": {"stores"},
    "processes": {"processes"},
    "tools": {"tools", "stores", "processes"},
    "scheduler": {"scheduler", "processes"} | INTERCEPT,
    "scheduler/vllm": {"scheduler", "scheduler/vllm", "processes"} | INTERCEPT,
    "simulator": {"scheduler", "simulator", "processes"} | INTERCEPT,
    "simulator/engine": {
        "processes",
        "scheduler",
        "simulator",
        "simulator/engine",
        "scheduler/vllm",
    }
    | INTERCEPT,
    "planning": {"planning", "processes", "scheduler", "simulator"} | INTERCEPT,
    "runtime": {
        "runtime",
        "tools",
        "stores",
        "processes",
        "scheduler",
        "simulator",
        "planning",
    }
    | INTERCEPT,
}
# Run in a process of their own, which imports what it needs when it is asked to.
WORKS_APART = {"tools/picture/diffusion_child.py", "scheduler/prompt_lengths/encoder.py"}
# Count the tokens of prompts by the library alone, which is small and starts no engine.
COUNTS_TOKENS = {"runtime/token_counter.py": "tokenizers"}
# The only places that start the real engine: they import the adapter when they are asked to.
COMPOSES = {
    "runtime/launch.py": "scheduler/vllm",
    "simulator/study/work.py": "simulator/engine",
}
ENGINE_PACKAGES = {"vllm", "torch", "transformers", "tokenizers"}
ENGINE_ROOMS = {"scheduler/vllm", "simulator/engine"}
# Policy. What draws samples is handed its generator, and names that one's type alone.
PURE = ("intercept/", "scheduler/policy/", "scheduler/predict/", "scheduler/messages.py")
TYPES = {"random.Random"}
IMPURE = {"time", "random", "logging", "asyncio", "threading", "os", "datetime", "socket"}

MAX_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_MODULES = 24
"""Modules of one folder, without its `__init__`: a folder holds what belongs together."""
# Folders that hold more, and how many at most: the numbers only shrink, and then the row goes.
CROWDED: dict[str, int] = {}
SMALL_LINES = 60
# Room -> at most so many of its folders, of its small modules, and of its modules that could join
# their only importer. A number that can fall is lowered; none is raised.
COUNTS = {
    "runtime": (21, 9, 27),
    "tools": (11, 6, 11),
    "intercept": (3, 0, 2),
    "scheduler": (15, 7, 14),
    "simulator": (6, 2, 12),
    "planning": (6, 2, 12),
    "stores": (1, 0, 1),
    "processes": (1, 0, 0),
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room_of(module: str) -> str:
    """`scheduler/vllm/client/engine.py` or `scheduler.vllm.client.engine` -> `scheduler/vllm`."""
    parts = module.removesuffix(".py").replace(".", "/").split("/")
    return max(
        (room for room in MAY_IMPORT if parts[: room.count("/") + 1] == room.split("/")), key=len
    )


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield f"{node.module}"
    yield from names_from(path)


def names_from(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, and the names that it takes from others."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: relative imports hide the direction"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    room = room_of(name_of(path))
    for module in imports(path):
        if module.startswith("caesura.") and module != "caesura.models":
            target = module.removeprefix("caesura.")
            if target.split(".")[0] not in ROOMS:
                continue
            allowed = MAY_IMPORT[room] | {COMPOSES.get(name_of(path), room)}
            assert room_of(target) in allowed, f"{name_of(path)} imports {module}"
        top = module.split(".")[0]
        apart = name_of(path) in WORKS_APART or COUNTS_TOKENS.get(name_of(path)) == top
        if top in ENGINE_PACKAGES and not apart:
            assert room in ENGINE_ROOMS, f"{name_of(path)} imports {module}"
    if name_of(path).startswith(PURE):
        for module in names_from(path):
            impure = module.split(".")[0] in IMPURE and module not in TYPES
            assert not impure, f"{name_of(path)} imports {module}: policy is pure"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MAX_LINES, f"{name_of(path)} holds more than one idea"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{name_of(path)}: {node.name} has {lines} lines"


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=name_of)
def test_folders_stay_small(folder: Path) -> None:
    count = sum(path.parent == folder and path.name != "__init__.py" for path in FILES)
    name = name_of(folder)
    most = CROWDED.get(name, MAX_MODULES)
    assert count <= most, f"{name} holds {count} modules; sort them into folders of {MAX_MODULES}"
    assert name not in CROWDED or count > MAX_MODULES, f"remove {name} from CROWDED"


def test_every_room_is_seen() -> None:
    assert {room_of(name_of(path)) for path in FILES} == set(MAY_IMPORT)


def folder_of(path: Path) -> str:
    return name_of(path.parent)


@cache
def imports_in(room: str) -> list[tuple[Path, Path]]:
    """Return who imports whom in a room, once for each pair; what an `__init__` hands on is not."""
    dotted = {name_of(path).removesuffix(".py").replace("/", "."): path for path in FILES}
    dotted |= {name.removesuffix(".__init__"): path for name, path in dotted.items()}
    pairs = {
        (path, dotted[target])
        for path in FILES
        if name_of(path).startswith(f"{room}/") and path.name != "__init__.py"
        for module in imports(path)
        if (target := module.removeprefix("caesura.")) in dotted and target.startswith(room)
    }
    return sorted((path, target) for path, target in pairs if path != target)


def knots(room: str) -> list[set[str]]:
    """Return the folders of a room that import each other in a circle."""
    targets = defaultdict(set)
    for path, target in imports_in(room):
        targets[folder_of(path)].add(folder_of(target))

    def reached(start: str) -> set[str]:
        seen, ahead = set(), [start]
        while ahead:
            fresh = targets[ahead.pop()] - seen
            seen |= fresh
            ahead += fresh
        return seen

    reach = {folder: reached(folder) - {folder} for folder in list(targets)}
    found = [{a} | {b for b in reach[a] if a in reach.get(b, ())} for a in reach]
    return [knot for index, knot in enumerate(found) if len(knot) > 1 and knot not in found[:index]]


def joinable(room: str) -> list[str]:
    """Return the modules whose only importer lies in their folder and has room for them."""
    importers = defaultdict(set)
    for path, target in imports_in(room):
        importers[target].add(path)
    return [
        name_of(path)
        for path, (*others,) in importers.items()
        if len(others) == 1
        and others[0].parent == path.parent
        and "__init__.py" not in {path.name, others[0].name}
        and sum(file.read_text().count("\n") for file in (path, others[0])) <= MAX_LINES
    ]


def test_no_test_module_imports_another() -> None:
    """What several of them need stands in a module beside them, or in `tests/kit`."""
    for path in (*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")):
        package = name_of(path.parent).replace("/", ".")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                parents = package.split(".")[: 1 - node.level or None] if node.level else []
                module = ".".join(filter(None, [*parents, node.module]))
                names = [module, *(f"{module}.{each.name}" for each in node.names)]
            elif isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            else:
                continue
            for name in names:
                *folders, last = name.split(".")
                is_test = last.startswith("test_") or last == "conftest"
                found = is_test and ROOT.joinpath(*folders, f"{last}.py").exists()
                assert not found, f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("room", COUNTS)
def test_folders_of_a_room_import_one_way(room: str) -> None:
    assert knots(room) == []


@pytest.mark.parametrize("room", COUNTS)
def test_rooms_grow_no_alleys(room: str) -> None:
    files = [path for path in FILES if name_of(path).startswith(f"{room}/")]
    small = [
        path
        for path in files
        if path.name != "__init__.py" and path.read_text().count("\n") < SMALL_LINES
    ]
    counts = (len({path.parent for path in files}), len(small), len(joinable(room)))
    what = ("folders", "small modules", "modules of one importer")
    for name, count, most in zip(what, counts, COUNTS[room], strict=True):
        assert count <= most, f"{room}: {count} {name}, and {most} were enough"


def test_counts_are_kept_of_every_room() -> None:
    assert set(COUNTS) == set(ROOMS)
