"""Ids of responses, conversations and their items."""

import uuid

CALL, CALL_OUTPUT, MESSAGE, REASONING = "fc", "fco", "msg", "rs"
APPROVAL_REQUEST, APPROVAL_RESPONSE = "mcpr", "mcpa"
COMPACTION, LIST_TOOLS, SERVER_CALL = "cmp", "mcpl", "mcp"
CONVERSATION, RESPONSE = "conv", "resp"


def new_id(prefix: str) -> str:
    """Return a new id that begins with `prefix` and cannot be guessed."""
    return f"{prefix}_{uuid.uuid4().hex}"


def new_turn() -> str:
    """Return a new name for a turn of server calls."""
    return uuid.uuid4().hex[:16]


def server_call_id(turn: str, call_id: str) -> str:
    """Return the item id of a server call, which holds its turn and the engine's call id.

    A history of such items therefore tells which calls were made in one turn.
    """
    return f"{SERVER_CALL}_{turn}_{call_id}"


def turn_and_call(item_id: str) -> tuple[str, str]:
    """Return the turn and the call id in the item id of a server call.

    An id of another origin has an empty turn, and is itself the call id.
    """
    prefix, _, rest = item_id.partition("_")
    turn, _, call_id = rest.partition("_")
    return (turn, call_id) if prefix == SERVER_CALL and call_id else ("", item_id)
