"""What an answer tells of the server's own tool calls, for requests with `server_tools`."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from caesura.intercept.calls.events import ResumeReport
from caesura.runtime.events import ToolReturned


def ran_here(ran: Iterable[ToolReturned], resumes: Iterable[ResumeReport]) -> dict[str, Any]:
    """Return the calls that the server ran, with their results, and the resumes after them."""
    return {"calls": list(map(_told, ran)), "resumes": [asdict(resume) for resume in resumes]}


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
