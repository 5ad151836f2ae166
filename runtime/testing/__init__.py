"""An engine in memory that follows a script, for tests of agents without a model."""

from caesura.runtime.testing.script import (
    Calls,
    Fail,
    Item,
    Malformed,
    Script,
    ScriptError,
    call,
    calls,
    fail,
    inline,
    malformed,
    say,
    think,
)
from caesura.runtime.testing.scripted_engine import ScriptedEngine, ScriptedSession

__all__ = [
    "Calls",
    "Fail",
    "Item",
    "Malformed",
    "Script",
    "ScriptError",
    "ScriptedEngine",
    "ScriptedSession",
    "call",
    "calls",
    "fail",
    "inline",
    "malformed",
    "say",
    "think",
]
