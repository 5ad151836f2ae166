"""How runs are called, and how counts, sums and faults are worded."""

import json
from typing import Any

from caesura.runtime.cli.show import plain
from caesura.runtime.recording import conventions as names
from caesura.runtime.recording.runs import Run
from caesura.scheduler.records import SpanRecord

FAULTS = {
    names.CANCELLED: "cancelled, the client left",
    "timeout": "timed out",
    "invalid_arguments": "invalid arguments",
    "unknown_tool": "unknown tool",
    "resting": "tool is resting after failures",
    "failed": "failed",
}
"""The words for kinds of errors; other kinds are classes of exceptions."""


def name_of(run: Run) -> str:
    """Return what a run is called: its question, else its agent, else the tools that it called."""
    tools = dict.fromkeys(str(call.attributes.get(names.TOOL_NAME, "")) for call in run.calls)
    agent = run.span.attributes.get(names.AGENT_NAME)
    called = ", ".join(filter(None, tools))
    return _question(run) or str(agent or "") or (f"run with {called}" if called else "run")


def counted(number: int, noun: str) -> str:
    """Return a number and a noun in the right form: 1 call, 2 calls."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def amount(value: float) -> str:
    """Return a sum with one decimal, or with two digits where it is below 1."""
    return f"{value:.1f}" if value == 0 or abs(value) >= 1 else f"{value:.2g}"


def fault_of(span: SpanRecord) -> str:
    """Return what went wrong in a span, or an empty text."""
    if span.status != "error":
        return ""
    if is_denied(span):
        return "denied by a person"
    kind = str(span.attributes.get(names.ERROR_TYPE, "failed"))
    said = FAULTS.get(kind, kind)
    if kind == names.CANCELLED and span.attributes.get(names.OPERATION) == names.EXECUTE_TOOL:
        said = "cancelled"
    return f"{said} {plain(span.message)}".strip()


def is_denied(span: SpanRecord) -> bool:
    """Return whether a person refused the call."""
    return any(event.attributes.get(names.PERSON_APPROVED) is False for event in span.events)


def _question(run: Run) -> str:
    said = run.turns[0].attributes.get(names.INPUT_MESSAGES) if run.turns else None
    try:
        messages: Any = json.loads(said) if isinstance(said, str) else []
        asked = [each for each in messages if each["role"] == "user"]
        texts = [part["content"] for part in asked[-1]["parts"] if part.get("type") == "text"]
        return " ".join(str(texts[0]).split())
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""  # nothing was captured, or it was cut
