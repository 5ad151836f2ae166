"""The response object: what a response tells of its request, its state and its output.

Clients require most of its keys, and the OpenResponses schema allows null in few of them. So the
object tells the settings that were in effect, also where the request left them out.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from caesura.runtime.events import Usage
from caesura.runtime.server.api.notes import with_notes
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.load.diagnosis import Change, Diagnosis
from caesura.runtime.server.responses import ids
from caesura.runtime.server.responses.schema import ResponseRequest, left_out
from caesura.runtime.server.responses.store import Item
from caesura.scheduler.messages import Sampling

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
FINAL: frozenset[str] = frozenset({"completed", "incomplete", "failed", "cancelled"})
"""The states that do not change any more."""

DEFAULT_TEMPERATURE = 1.0
DEFAULT_TOP_P = 1.0
MAX_OUTPUT_TOKENS = "max_output_tokens"
"""The reason of a response that is incomplete because a token limit cut it."""


def usage_of(total: Usage, cached_tokens: int | None) -> dict[str, Any]:
    """Return the token counts of a response; `cached_tokens` are those of the client's prompt."""
    prompt, completion = total.prompt_tokens, total.completion_tokens
    cached = {"cached_tokens": min(cached_tokens or 0, prompt), "cache_write_tokens": 0}
    return {
        "input_tokens": prompt,
        "input_tokens_details": cached,
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": total.reasoning_tokens},
        "total_tokens": prompt + completion,
    }


_REASONS: Mapping[Change, str] = {
    "model": "model_changed",
    "tools": "tools_changed",
    "effort": "reasoning_effort_changed",
    "compacted": "context_compacted",
    "system": "input_changed",
    "messages": "input_changed",
}


def cache_diagnostics(diagnosis: Diagnosis, cached_tokens: int | None) -> dict[str, Any]:
    """Return what became of the prompt's cache beside the response that the request names.

    A prompt that goes on where the other one ends is a hit only if the engine found some of it.
    """
    if diagnosis.before is None:
        return {"type": "comparison_response_not_found"}
    found = diagnosis.miss
    if found is None:
        return {"type": "cache_hit" if cached_tokens else "unavailable"}
    if found.change not in _REASONS:
        return {"type": "unavailable"}
    missed = found.missed(cached_tokens)
    return {
        "type": "cache_miss",
        "reason": _REASONS[found.change],
        "cache_missed_tokens": missed,
        "comparison_reusable_tokens": found.tokens - missed,
    }


@dataclass(slots=True)
class Resource:
    """One response. `public` returns it as clients get it.

    `defaults` are the model's own sampling settings, which hold where the request has none.
    """

    request: ResponseRequest
    defaults: Sampling
    id: str = field(default_factory=lambda: ids.new_id(ids.RESPONSE))
    created_at: int = field(default_factory=lambda: int(time.time()))
    status: Status = "in_progress"
    output: Sequence[Item] = ()
    usage: dict[str, Any] | None = None
    completed_at: int | None = None
    error: dict[str, Any] | None = None
    incomplete: str | None = None
    cache: dict[str, Any] | None = None
    """What became of the prompt's cache, for a request that asks for it."""
    extension: dict[str, Any] | None = None
    """What the server's own tools did, for a request with `server_tools`."""
    notes: Sequence[str] = ()
    """What of the input was left out, beside what the request tells by itself."""

    def complete(self, reason: str | None, now: float) -> None:
        """End the response at the Unix time `now`; `reason` says why it is incomplete, if it is."""
        self.status = "completed" if reason is None else "incomplete"
        self.incomplete = reason
        self.completed_at = int(now) if reason is None else None

    def fail(self, error: ApiError) -> None:
        """End the response with an error."""
        self.status = "failed"
        self.error = {"code": error.code or error.type, "message": error.message}

    def public(self) -> dict[str, Any]:
        """Return the object with every key that clients require."""
        told = {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": self.status,
            "completed_at": self.completed_at,
            "error": self.error,
            "incomplete_details": {"reason": self.incomplete} if self.incomplete else None,
            "model": self.request.model,
            "output": list(self.output),
            "usage": self.usage,
        }
        told |= _echo(self.request) | _settings(self.request, self.defaults)
        if self.request.compared_with is not None:
            told["prompt_cache_diagnostics"] = self.cache
        own = with_notes(self.extension, [*left_out(self.request), *self.notes])
        return told if own is None else told | {"caesura": own}


def _echo(request: ResponseRequest) -> dict[str, Any]:
    """Return the fields that tell the request as it was."""
    told: dict[str, Any] = {
        "background": bool(request.background),
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": _reasoning(request),
        "safety_identifier": request.safety_identifier,
        "service_tier": "default",
        "store": request.stored,
        "text": _text(request),
        "tool_choice": _tool_choice(request),
        "tools": [tool.public() for tool in request.tools if hasattr(tool, "public")],
        "top_logprobs": request.top_logprobs or 0,
        "truncation": request.truncation or "disabled",
    }
    if request.user is not None:
        told["user"] = request.user
    if request.conversation is not None:
        told["conversation"] = {"id": request.conversation}
    return told


def _settings(request: ResponseRequest, defaults: Sampling) -> dict[str, Any]:
    """Return the sampling settings that were in effect."""

    def effective(name: str, otherwise: float) -> float:
        for settings in (request, defaults):
            if (value := getattr(settings, name)) is not None:
                return float(value)
        return otherwise

    return {
        "temperature": effective("temperature", DEFAULT_TEMPERATURE),
        "top_p": effective("top_p", DEFAULT_TOP_P),
        "presence_penalty": effective("presence_penalty", 0.0),
        "frequency_penalty": effective("frequency_penalty", 0.0),
    }


def _reasoning(request: ResponseRequest) -> dict[str, Any]:
    asked = request.reasoning
    return {
        "effort": None if asked is None else asked.effort,
        "summary": None if asked is None else asked.summary,
    }


def _text(request: ResponseRequest) -> dict[str, Any]:
    asked = request.text
    form = None if asked is None else asked.format
    told: dict[str, Any] = {"format": {"type": "text"} if form is None else form.public()}
    if asked is not None and asked.verbosity is not None:
        told["verbosity"] = asked.verbosity  # the key may be absent, but never null
    return told


def _tool_choice(request: ResponseRequest) -> Any:
    choice = request.tool_choice
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    return choice.model_dump(exclude_none=True)
