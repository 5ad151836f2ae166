"""Errors for users name the value that was given: a message without one is listed here."""

import ast
from collections import Counter
from pathlib import Path

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
FOR_USERS = {"UsageError", "SetupError", "DataError", "StudyError", "CalibrationError"}

# File -> most messages without a value: a state of the program, two options that exclude each
# other, or something that is missing. None of them has a value to name.
MAX_WITHOUT_VALUE = {
    "runtime/cli/kb.py": 1,
    "runtime/cli/options.py": 1,
    "runtime/cli/plan/studies.py": 1,
    "runtime/cli/tool_calls.py": 1,
    "runtime/cli/recordings.py": 1,
    "runtime/run/limits.py": 1,
    "runtime/sdk/session.py": 4,
    "runtime/server/keys/access.py": 1,
    "runtime/testing/scripted_engine.py": 1,
    "runtime/tracing/setup.py": 1,
    "runtime/whatif/replays.py": 1,
    "scheduler/vllm/client/measurement.py": 1,
    "scheduler/vllm/client/session.py": 3,
    "simulator/study/pool.py": 4,
    "tools/people/asking.py": 2,
    "tools/speech/speak.py": 1,
}


def without_value(path: Path) -> int:
    """Count the errors for users whose message is a constant."""
    found = 0
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
            continue
        called, message = node.exc.func, node.exc.args
        name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
        if name in FOR_USERS and message:
            found += all(isinstance(part, ast.Constant) for part in message)
    return found


def test_errors_for_users_name_the_value_that_was_given() -> None:
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    found = Counter({path.relative_to(ROOT).as_posix(): without_value(path) for path in files})
    too_many = {
        name: count for name, count in found.items() if count > MAX_WITHOUT_VALUE.get(name, 0)
    }
    assert not too_many, "these messages do not say which value was wrong"


def test_the_list_does_not_outlive_its_reasons() -> None:
    gone = {name for name in MAX_WITHOUT_VALUE if not (ROOT / name).exists()}
    assert not gone
