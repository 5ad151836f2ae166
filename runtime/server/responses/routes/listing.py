"""Lists of items in pages, in OpenAI's form."""

from collections.abc import Mapping, Sequence
from typing import Any

from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.responses.items.given import Item

DEFAULT_LIMIT, MAX_LIMIT = 20, 100
ORDERS = ("asc", "desc")


def page(items: Sequence[Item], query: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of items, which are given in the order of their making.

    `query` may have `order` (`desc` by default), `limit` and `after`, the id of the item before
    the page. Raises `ApiError` 400 for another value.
    """
    order = query.get("order", "desc")
    if order not in ORDERS:
        raise invalid(f"order must be one of {', '.join(ORDERS)}, got {order[:40]!r}.", "order")
    limit = _limit(query.get("limit"))
    found = list(items) if order == "asc" else list(reversed(items))
    after = query.get("after")
    if after is not None:
        places = [number for number, item in enumerate(found) if item["id"] == after]
        if not places:
            raise invalid(f"after names no item of this list, got {after[:80]!r}.", "after")
        found = found[places[0] + 1 :]
    data = found[:limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(found) > limit,
    }


def _limit(said: str | None) -> int:
    if said is None:
        return DEFAULT_LIMIT
    if not said.isdecimal() or len(said) > 3 or not 1 <= int(said) <= MAX_LIMIT:
        message = f"limit must be a whole number from 1 to {MAX_LIMIT}, got {said[:40]!r}."
        raise invalid(message, "limit")
    return int(said)
