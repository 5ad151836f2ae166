"""Ids of responses, conversations and their items."""

import hashlib
import uuid

CALL, CALL_OUTPUT, MESSAGE, REASONING = "fc", "fco", "msg", "rs"
APPROVAL_REQUEST, APPROVAL_RESPONSE = "mcpr", "mcpa"
COMPACTION, LIST_TOOLS, SERVER_CALL = "cmp", "mcpl", "mcp"
CONVERSATION, RESPONSE = "conv", "resp"
CUSTOM_CALL, CUSTOM_CALL_OUTPUT, LEFT_OUT = "ctc", "ctco", "item"
WEB_SEARCH_CALL = "ws"
CODE_CALL, CONTAINER, SHELL_CALL, SHELL_OUTPUT = "ci", "cntr", "sh", "sho"
TOOL_SEARCH_CALL, TOOL_SEARCH_OUTPUT = "tsc", "tso"


def new_id(prefix: str) -> str:
    """Return a new id that begins with `prefix` and cannot be guessed."""
    return f"{prefix}_{uuid.uuid4().hex}"


class Derived:
    """Ids that follow from a response's id and their order.

    A response that is made again, from its journal, gets the same ids. Its own id is random, so
    that its items' ids cannot be guessed either.
    """

    def __init__(self, response_id: str) -> None:
        self._seed = response_id
        self._count = 0

    def item(self, prefix: str) -> str:
        """Return the id of the next item."""
        return f"{prefix}_{self._next()[:32]}"

    def turn(self) -> str:
        """Return the name of the next turn of server calls."""
        return self._next()[:16]

    def _next(self) -> str:
        self._count += 1
        return hashlib.sha256(f"{self._seed} {self._count}".encode()).hexdigest()


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
