"""Decisions of clients about calls that wait for an approval."""

from collections.abc import Sequence
from dataclasses import dataclass

from caesura.runtime.server.responses.items import ids
from caesura.runtime.server.responses.items.given import Item

WHO = "mcp_approval_response"
"""Who decides where the key has no name."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The client's decision about a call that waits for an approval."""

    request_id: str
    approve: bool
    reason: str
    who: str = WHO


def approval_request_id(pending_id: str) -> str:
    """Return the id of the approval request for an item that waits for a person."""
    return f"{ids.APPROVAL_REQUEST}_{pending_id}"


def pending_id(approval_request_id: str) -> str:
    """Return the id of the item that waits for a person, of its approval request."""
    return approval_request_id.removeprefix(f"{ids.APPROVAL_REQUEST}_")


def decisions_in(items: Sequence[Item]) -> dict[str, Item]:
    """Return the decisions about calls that the items do not show as made, by approval request."""
    made = {item.get("approval_request_id") for item in items if item["type"] == "mcp_call"}
    return {
        item["approval_request_id"]: item
        for item in items
        if item["type"] == "mcp_approval_response" and item["approval_request_id"] not in made
    }
