"""The shape of the project: who may import whom, and how large a file may grow."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("runtime", "tools", "intercept", "scheduler", "simulator", "planning")
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

INTERCEPT = {"intercept", "intercept/calls", "intercept/kv"}
# Room (the longest match wins) -> what of caesura it may import.
MAY_IMPORT = {
    "intercept": {"intercept"},
    "intercept/calls": {"intercept", "intercept/calls"},
    "intercept/kv": {"intercept", "intercept/calls", "intercept/kv"},
    "tools": {"tools"},
    "scheduler": {"scheduler"} | INTERCEPT,
    "scheduler/vllm": {"scheduler", "scheduler/vllm"} | INTERCEPT,
    "simulator": {"scheduler", "simulator"} | INTERCEPT,
    "simulator/engine": {
        "scheduler",
        "simulator",
        "simulator/engine",
        "scheduler/vllm",
    }
    | INTERCEPT,
    "planning": {"planning", "scheduler", "simulator"} | INTERCEPT,
    "runtime": {"runtime", "tools", "scheduler", "simulator", "planning"} | INTERCEPT,
}
# Run in a process of their own, which imports what it needs when it is asked to.
WORKS_APART = {"tools/picture/diffusion/child.py", "scheduler/prompt_lengths/encoder.py"}
# Count the tokens of prompts by the library alone, which is small and starts no engine.
COUNTS_TOKENS = {"runtime/token_counter.py": "tokenizers"}
# The only places that start the real engine: they import the adapter when they are asked to.
COMPOSES = {
    "runtime/launch.py": "scheduler/vllm",
    "simulator/study/work.py": "simulator/engine",
}
ENGINE_PACKAGES = {"vllm", "torch", "transformers", "tokenizers"}
ENGINE_ROOMS = {"scheduler/vllm", "simulator/engine"}
# Policy. (What draws samples is handed its generator: that is seen in review, not here.)
PURE = ("intercept/", "scheduler/rank/", "scheduler/admission/view.py", "scheduler/messages.py")
IMPURE = {"time", "random", "logging", "asyncio", "threading", "os", "datetime", "socket"}

MAX_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_MODULES = 20
"""Modules of one folder, without its `__init__`."""
# Folders that hold more, and how many at most: the numbers only shrink, and then the row goes.
CROWDED: dict[str, int] = {}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room_of(module: str) -> str:
    """`scheduler/vllm/client.py` or `scheduler.vllm.client.engine` -> `scheduler/vllm`."""
    parts = module.removesuffix(".py").replace(".", "/").split("/")
    return max(
        (room for room in MAY_IMPORT if parts[: room.count("/") + 1] == room.split("/")), key=len
    )


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: relative imports hide the direction"
            yield f"{node.module}"
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
            assert top not in IMPURE, f"{name_of(path)} imports {module}: policy is pure"


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
