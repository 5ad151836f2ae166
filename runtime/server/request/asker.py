"""The identity of a request's sender, to which approvals and remembered answers are bound."""

import hashlib
import json
from collections.abc import Mapping

from caesura.runtime.server.http.access import authorization_of

IDEMPOTENCY_KEY = "Idempotency-Key"


def asker_of(user: str | None, headers: Mapping[str, str]) -> str:
    """Return a digest of the sender, or an empty text if neither the header nor `user` is set.

    `user` is OpenAI's field. The header `Idempotency-Key` holds a text that the client chooses
    and repeats whenever it repeats this request. The API key is part of the digest. It does not
    suffice alone, since all clients share one key.
    """
    key = headers.get(IDEMPOTENCY_KEY)
    if not user and not key:
        return ""
    text = json.dumps(["http", authorization_of(headers), user or None, key or None])
    return hashlib.sha256(text.encode()).hexdigest()


def owner_of(user: str | None, headers: Mapping[str, str]) -> str:
    """Return a digest of the API key and OpenAI's field `user`; empty without both.

    Only a later request of the same owner continues from the tokens of an answer.
    """
    key = authorization_of(headers)
    if not user and not key:
        return ""
    return hashlib.sha256(json.dumps(["owner", key, user or None]).encode()).hexdigest()
