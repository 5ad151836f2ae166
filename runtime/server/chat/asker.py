"""Who sends a request, as far as the request says so: what an approval belongs to."""

import hashlib
import json
from collections.abc import Mapping

IDEMPOTENCY_KEY = "Idempotency-Key"


def asker_of(user: str | None, headers: Mapping[str, str]) -> str:
    """Return a digest of who sends a request; empty if neither header nor `user` tells it.

    `user` is OpenAI's field. The header `Idempotency-Key` holds a text of the client's own, the
    same whenever it sends this request. The API key counts too, but alone tells nothing: it is
    one for all clients.
    """
    key = headers.get(IDEMPOTENCY_KEY)
    if not user and not key:
        return ""
    text = json.dumps(["http", headers.get("Authorization"), user or None, key or None])
    return hashlib.sha256(text.encode()).hexdigest()
