"""What an answer tells of its run: the server's own calls, the tokens, and why it ended."""

from dataclasses import asdict
from typing import Any, Literal

from caesura.intercept.calls.events import ResumeReport, TurnEnded
from caesura.runtime.events import RunEnded, RunEvent, ToolReturned, Usage, UsageCount


class RunTally:
    """Adds up the events of a run that no client sees as they are."""

    def __init__(self) -> None:
        self.reason: Literal["stop", "length", "calls"] = "stop"
        """Why the run ended."""
        self.cached_tokens: int | None = None
        """Tokens of the first prompt that were in the KV cache, or None before the first turn."""
        self.first_prompt_tokens = 0
        self._usage = UsageCount()
        self._ran: dict[str, ToolReturned | None] = {}
        self._resumes: list[ResumeReport] = []

    @property
    def total(self) -> Usage:
        """The usage of all turns."""
        return self._usage.total

    def take(self, event: RunEvent) -> None:
        """Add one event."""
        match event:
            case TurnEnded():
                self._usage.take(event)
                if self.cached_tokens is None:
                    self.cached_tokens = event.cached_tokens
                    self.first_prompt_tokens = event.prompt_tokens
                if event.resume is not None:
                    self._resumes.append(event.resume)
            case ToolReturned(call=call):
                self._ran[call.id] = event
            case RunEnded(reason=reason):
                self.reason = reason
            case _:
                pass

    def called(self, call_id: str) -> None:
        """Keep the place of a call that the server runs, until its result arrives."""
        self._ran[call_id] = None

    def extension(self) -> dict[str, Any] | None:
        """Return the server's own calls and resumes, or None if it ran no tool."""
        ran = [returned for returned in self._ran.values() if returned is not None]
        if not ran:
            return None
        return {"calls": list(map(_told, ran)), "resumes": list(map(asdict, self._resumes))}


def _told(returned: ToolReturned) -> dict[str, Any]:
    result = returned.result
    return {
        "name": returned.call.name,
        "arguments": returned.call.arguments,
        "content": result.content,
        "error": result.error,
        "seconds": result.seconds,
        "artifacts": [
            {"url": made.url, "media_type": made.media_type, "bytes": made.size_bytes}
            for made in result.artifacts
        ],
    }
