"""One answer, drawn from a run's events: deltas for a stream, the message for a plain response."""

import time
import uuid
from dataclasses import asdict
from typing import Any, Literal

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    ResumeReport,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.events import RunEnded, RunEvent, ToolReturned, UsageCount

Delta = dict[str, Any]


class Answer:
    """What the client gets to see of a run.

    Calls of the client's tools are shown; calls that the server runs never are. If the server runs
    none (`pausing` is False), all calls are the client's and their arguments stream as they come,
    a malformed call's too: the client answers it as it answers any call. Otherwise a call is shown
    once it is complete, since the model is told of a malformed one and tries again.
    """

    def __init__(self, model: str, client_tools: frozenset[str], *, pausing: bool) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.model = model
        self._client_tools = client_tools
        self._pausing = pausing
        self._text: list[str] = []
        self._new_paragraph = False
        self._shown: dict[str, _ShownCall] = {}
        self._ran: dict[str, ToolReturned | None] = {}
        self._resumes: list[ResumeReport] = []
        self._usage = UsageCount()
        self._cached_tokens: int | None = None
        self._reason: Literal["stop", "length", "calls"] = "stop"

    def take(self, event: RunEvent) -> list[Delta]:
        """Note one event; return what a stream shows of it."""
        match event:
            case TextDelta(text=text):
                return self._say(text)
            case CallStarted():
                return [] if self._pausing else self._show(event.call_id, event.name)
            case ArgumentsDelta(call_id=call_id, text=text) if call_id in self._shown:
                return self._shown[call_id].extend(text)
            case CallFinished():
                return self._finish_call(event)
            case CallMalformed():
                return self._malformed_call(event)
            case TurnEnded():
                self._end_turn(event)
            case ToolReturned(call=call):
                self._ran[call.id] = event
            case RunEnded(reason=reason):
                self._reason = reason
            case _:
                pass
        return []

    def cut(self) -> None:
        """Note that a limit of tokens cut the answer between two turns."""
        self._reason = "length"

    def _say(self, text: str) -> list[Delta]:
        if self._new_paragraph and text:
            # The model began a new message; without a break its words would run into the old one.
            glued = self._text and not self._text[-1][-1:].isspace() and not text[:1].isspace()
            text = f"\n\n{text}" if glued else text
            self._new_paragraph = False
        self._text.append(text)
        return [{"content": text}]

    def _show(self, call_id: str, name: str) -> list[Delta]:
        call = self._shown[call_id] = _ShownCall(len(self._shown), name)
        return call.opening()

    def _finish_call(self, event: CallFinished) -> list[Delta]:
        if self._pausing and event.name not in self._client_tools:
            self._run_here(event)
            return []
        deltas = [] if event.call_id in self._shown else self._show(event.call_id, event.name)
        return deltas + self._shown[event.call_id].complete(event.arguments)

    def _malformed_call(self, event: CallMalformed) -> list[Delta]:
        if self._pausing:
            self._run_here(event)
            return []
        if event.call_id not in self._shown:
            return self._say(event.text)
        return self._shown[event.call_id].complete(event.text)

    def _run_here(self, event: CallFinished | CallMalformed) -> None:
        self._ran[event.call_id] = None  # keeps the order of the calls; the result comes later
        self._new_paragraph = not event.inline

    def _end_turn(self, turn: TurnEnded) -> None:
        self._usage.take(turn)
        if self._cached_tokens is None:
            self._cached_tokens = turn.cached_tokens
        if turn.resume is not None:
            self._resumes.append(turn.resume)

    @property
    def leaves_calls(self) -> bool:
        """Whether the answer ended with calls of the client's, who will answer them later."""
        return self._reason == "calls"

    @property
    def finish_reason(self) -> str:
        """Why the answer ended, in OpenAI's words."""
        if self._reason == "length":
            return "length"
        return "tool_calls" if self._shown else "stop"

    def usage(self) -> dict[str, Any]:
        """Tokens over the whole request.

        `cached_tokens` is the part of the client's prompt that was in the KV cache. What resumes
        found there is told per resume: adding it up would count the same tokens again each time.
        """
        total = self._usage.total
        prompt, completion = total.prompt_tokens, total.completion_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": min(self._cached_tokens or 0, prompt)},
        }

    def message(self) -> dict[str, Any]:
        """The whole message of the assistant."""
        text = "".join(self._text)
        if not self._shown:
            return {"role": "assistant", "content": text}
        calls = [call.whole() for call in self._shown.values()]
        return {"role": "assistant", "content": text or None, "tool_calls": calls}

    def extension(self) -> dict[str, Any] | None:
        """What the server did inside the request; None if it ran no tool."""
        ran = [returned for returned in self._ran.values() if returned is not None]
        if not ran:
            return None
        calls = [
            {
                "name": returned.call.name,
                "arguments": returned.call.arguments,
                "content": returned.result.content,
                "error": returned.result.error,
                "seconds": returned.result.seconds,
                "artifacts": [
                    {"url": made.url, "media_type": made.media_type, "bytes": made.size_bytes}
                    for made in returned.result.artifacts
                ],
            }
            for returned in ran
        ]
        return {"calls": calls, "resumes": [asdict(resume) for resume in self._resumes]}


class _ShownCall:
    """A call of a client's tool, as far as it has been sent."""

    def __init__(self, index: int, name: str) -> None:
        # The engine's ids are unique in a session only, the client's conversation outlives it.
        # Nine alphanumerical characters: Mistral's chat templates refuse any other id.
        self._id = uuid.uuid4().hex[:9]
        self._index = index
        self._name = name
        self._sent = ""

    def opening(self) -> list[Delta]:
        function = {"name": self._name, "arguments": ""}
        return [self._delta({"id": self._id, "type": "function", "function": function})]

    def extend(self, text: str) -> list[Delta]:
        self._sent += text
        return [self._delta({"function": {"arguments": text}})] if text else []

    def complete(self, arguments: str) -> list[Delta]:
        """Send what is still missing of `arguments`; nothing if they came as deltas."""
        return [] if self._sent else self.extend(arguments)

    def whole(self) -> dict[str, Any]:
        function = {"name": self._name, "arguments": self._sent}
        return {"id": self._id, "type": "function", "function": function}

    def _delta(self, fields: dict[str, Any]) -> Delta:
        return {"tool_calls": [{"index": self._index, **fields}]}
