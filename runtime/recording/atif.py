"""A session as a trajectory in ATIF 1.8, the Agent Trajectory Interchange Format of Harbor."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from caesura.distribution import __version__
from caesura.runtime.recording import conventions as names
from caesura.runtime.recording.entries import Entry, Recording
from caesura.runtime.recording.runs import Run
from caesura.scheduler.errors import UsageError
from caesura.scheduler.records import SpanRecord

SCHEMA_VERSION = "ATIF-v1.8"
CUT = " [cut: "
"""How the note begins that stands behind a text that was cut."""
NOTE = "Texts that end with '[cut: N characters in all]' were cut when they were recorded."
SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
"""The source of a step by the role of its message; results of tools belong to the agent's step."""

Message = dict[str, Any]
"""A message in the form of the GenAI conventions: its role, and parts with types."""


def trajectory(runs: Sequence[Run], session: str, recording: Recording) -> Entry:
    """Return the trajectory of a session's runs, which are in order of time.

    A turn is one step, with its calls and their results. A request's history is told once: what a
    later request sends again is left out. Raises `UsageError` if no texts were recorded.
    """
    steps = _Steps(_results(runs))
    for run in runs:
        for turn in run.turns:
            steps.take(turn)
    if not steps.told:
        raise UsageError(
            f"the texts of {session!r} were not recorded: record them with `caesura serve"
            " --trace-content`, or content = true in [trace]"
        )
    span = runs[0].span.attributes
    models = (turn.attributes.get(names.REQUEST_MODEL) for run in runs for turn in run.turns)
    agent = {
        "name": str(span.get(names.AGENT_NAME) or "caesura"),
        "version": str(recording.about.get("version") or __version__),
        "model_name": next((str(model) for model in models if model), None),
    }
    found = {
        "schema_version": SCHEMA_VERSION,
        "session_id": session,
        "agent": _filled(agent),
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps.told, 1)],
        "notes": NOTE if CUT in json.dumps(steps.told) else None,
        "final_metrics": _sums(steps.told),
        "extra": _filled({"recording": recording.title, "parent": span.get(names.SESSION_PARENT)}),
    }
    return _filled(found)


class _Steps:
    """The steps of a conversation while its turns are read."""

    def __init__(self, results: Mapping[str, SpanRecord]) -> None:
        self.told: list[Entry] = []
        self._results = results
        self._known: list[Any] = []
        """What tells each message so far apart from others."""
        self._of_call: dict[str, Entry] = {}
        """The step that made each call."""

    def take(self, turn: SpanRecord) -> None:
        """Add the new messages of a turn's input, and its answer."""
        asked = _messages(turn, names.INPUT_MESSAGES)
        for message in asked[self._overlap(asked) :]:
            self._add(message, turn.start)
        for message in _messages(turn, names.OUTPUT_MESSAGES):
            self._add(message, turn.start, turn)

    def _overlap(self, messages: Sequence[Message]) -> int:
        """Return how many of the first messages the conversation ends with."""
        keys = [_key(message) for message in messages]
        for count in range(min(len(keys), len(self._known)), 0, -1):
            if self._known[-count:] == keys[:count]:
                return count
        return 0

    def _add(self, message: Message, at: float, turn: SpanRecord | None = None) -> None:
        self._known.append(_key(message))
        if message.get("role") == "tool":
            for part in _parts(message, "tool_call_response"):
                self._observe(part, at)
            return
        source = SOURCES.get(str(message.get("role")), "user")
        step: Entry = {
            "timestamp": datetime.fromtimestamp(at, UTC).isoformat(),
            "source": source,
            "message": _joined(message, "text"),
        }
        self.told.append(step)
        if source != "agent":
            return
        step |= {"is_copied_context": True} if turn is None else _facts(turn)
        if reasoning := _joined(message, "reasoning"):
            step["reasoning_content"] = reasoning
        calls = [_call(part) for part in _parts(message, "tool_call")]
        if calls:
            step["tool_calls"] = calls
        for call in calls:
            self._of_call[call["tool_call_id"]] = step
            span = self._results.get(call["tool_call_id"])
            if span is not None and names.TOOL_RESULT in span.attributes:
                self._put(step, call["tool_call_id"], span.attributes[names.TOOL_RESULT], span)

    def _observe(self, part: Mapping[str, Any], at: float) -> None:
        """Add a tool's result to the step of its call; one of an unknown call is a step."""
        call = str(part.get("id"))
        step = self._of_call.get(call)
        if step is None:
            step = {
                "timestamp": datetime.fromtimestamp(at, UTC).isoformat(),
                "source": "system",
                "message": "",
            }
            self.told.append(step)
            self._put(step, None, part.get("response"))
        elif all(each["source_call_id"] != call for each in _observed(step)):
            self._put(step, call, part.get("response"))

    @staticmethod
    def _put(step: Entry, call: str | None, text: Any, span: SpanRecord | None = None) -> None:
        result: Entry = {"source_call_id": call, "content": str(text)}
        if span is not None:
            seconds = None if span.end is None else round(span.end - span.start, 6)
            error = span.attributes.get(names.ERROR_TYPE)
            result["extra"] = _filled({"seconds": seconds, "error": error})
        step.setdefault("observation", {"results": []})["results"].append(_filled(result))


def _observed(step: Entry) -> list[Entry]:
    results: list[Entry] = step.get("observation", {}).get("results", [])
    return results


def _results(runs: Iterable[Run]) -> dict[str, SpanRecord]:
    """Return the spans of the calls that the server ran, by the ids of the calls."""
    calls = (call for run in runs for call in run.calls)
    return {str(call.attributes.get(names.TOOL_CALL_ID)): call for call in calls}


def _facts(turn: SpanRecord) -> Entry:
    """Return what is known of a turn beside its texts."""
    told = turn.attributes
    counted = {
        "prompt_tokens": told.get(names.INPUT_TOKENS),
        "completion_tokens": told.get(names.OUTPUT_TOKENS),
        "cached_tokens": told.get(names.CACHED_TOKENS),
    }
    extra = _filled({"reasoning_tokens": told.get(names.REASONING_TOKENS)})
    return _filled(
        {
            "model_name": told.get(names.REQUEST_MODEL),
            "llm_call_count": 1,
            "metrics": _filled({**counted, "extra": extra}),
            "extra": _filled({"request_id": told.get(names.REQUEST_ID)}),
        }
    )


def _sums(steps: Iterable[Entry]) -> Entry:
    """Return the sums of the steps' metrics."""
    steps = list(steps)
    sums: dict[str, int] = {}
    for step in steps:
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
            value = step.get("metrics", {}).get(name)
            if value is not None:
                sums[f"total_{name}"] = sums.get(f"total_{name}", 0) + int(value)
    return {**sums, "total_steps": len(steps)}


def _messages(turn: SpanRecord, name: str) -> list[Message]:
    try:
        found = json.loads(str(turn.attributes.get(name, "[]")))
    except ValueError:  # a damaged entry in the file
        return []
    listed = found if isinstance(found, list) else []
    return [each for each in listed if isinstance(each, dict)]


def _parts(message: Message, kind: str) -> Iterator[Mapping[str, Any]]:
    parts = message.get("parts")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, Mapping) and part.get("type") == kind:
            yield part


def _joined(message: Message, kind: str) -> str:
    return "\n".join(str(part.get("content", "")) for part in _parts(message, kind))


def _key(message: Message) -> Any:
    """Return what is equal for a message and its copy in a later history."""
    calls = [(part.get("name"), _arguments(part)) for part in _parts(message, "tool_call")]
    results = [str(part.get("response")) for part in _parts(message, "tool_call_response")]
    return message.get("role"), _joined(message, "text").strip(), calls, results


def _arguments(part: Mapping[str, Any]) -> Any:
    try:
        return json.loads(str(part.get("arguments") or "{}"))
    except ValueError:
        return part.get("arguments")


def _call(part: Mapping[str, Any]) -> Entry:
    arguments = _arguments(part)
    call = {"tool_call_id": str(part.get("id")), "function_name": str(part.get("name"))}
    if isinstance(arguments, dict):
        return {**call, "arguments": arguments}
    return {**call, "arguments": {}, "extra": {"raw_arguments": part.get("arguments")}}


def _filled(values: Mapping[str, Any]) -> Entry:
    """Return the values that say something."""
    return {name: each for name, each in values.items() if each is not None and each != {}}
