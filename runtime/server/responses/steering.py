"""Steering a response: input that reaches its run, and the response that goes on behind it."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from caesura.runtime.server.api.fields import Part
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.responses import ids
from caesura.runtime.server.responses.items import items_of
from caesura.runtime.server.responses.store import Item

STEER = "steer"
NOT_FOUND, ENDED = "response_not_found", "response_already_completed"
UNSUPPORTED, TOO_MANY = "steering_not_supported", "too_many_pending_steers"
INVALID = "invalid_input"
_KEYS = {"type", "role", "content"}


class SteerRequest(Part):
    """The body of a request to steer: a text, or a list of messages of the user."""

    input: Any = None


@dataclass(slots=True, eq=False)
class Steer:
    """One submission of input to a response under way."""

    given: Any
    """The input as the client sent it."""
    items: Sequence[Item]
    target: str
    """The id of the response that was steered."""
    id: str = field(default_factory=lambda: ids.new_id(STEER))
    left: int = 0
    """How many of its messages the model was not told yet."""
    ended: asyncio.Future[str | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """The id of the response that goes on behind it; None: the run ended before."""

    def end(self, successor: str | None) -> None:
        """Note what became of it."""
        if not self.ended.done():
            self.ended.set_result(successor)


def refused(code: str, message: str) -> ApiError:
    """Return the error for input that does not reach a response."""
    status = {NOT_FOUND: 404, ENDED: 409, TOO_MANY: 429}.get(code, 400)
    return ApiError(status, message, code=code)


def steer_of(given: object, target: str) -> Steer:
    """Return a submission; raise `ApiError` for anything but messages of the user."""
    if isinstance(given, list):
        for place, each in enumerate(given):
            fields = set(each) if isinstance(each, Mapping) else set()
            if not fields <= _KEYS or not isinstance(each, Mapping) or each.get("role") != "user":
                raise refused(
                    INVALID,
                    f"input[{place}] must be a message of the user, with no fields but type, role"
                    f" and content; got {str(each)[:80]}.",
                )
    if not given or not isinstance(given, str | list):
        raise refused(INVALID, f"input must be a text or a list of messages, got {given!r:.80}.")
    try:
        items = items_of(given)
    except ApiError as error:
        raise refused(INVALID, error.message) from None
    return Steer(given, items, target, left=len(items))


def successor_id(response_id: str) -> str:
    """Return the id of the response behind a steered one, the same if the run is driven again."""
    digest = hashlib.sha256(f"{response_id} goes on".encode()).hexdigest()
    return f"{ids.RESPONSE}_{digest[:32]}"


def required_input(output: Sequence[Item]) -> list[dict[str, Any]]:
    """Return what a client has to send for an output: results of its calls, and approvals."""
    needed: list[dict[str, Any]] = []
    for item in output:
        match item["type"]:
            case "function_call" if not item.get("async"):
                stub = {"type": "function_call_output", "call_id": item["call_id"]}
                needed.append(stub | {"name": item["name"]})
            case "custom_tool_call" | "tool_search_call" if not item.get("async"):
                kind = str(item["type"]).replace("custom_tool_call", "custom_tool_call_output")
                kind = kind.replace("tool_search_call", "tool_search_output")
                needed.append({"type": kind, "call_id": item["call_id"]})
            case "mcp_approval_request":
                stub = {"type": "mcp_approval_response", "approval_request_id": item["id"]}
                needed.append(stub)
    return needed
