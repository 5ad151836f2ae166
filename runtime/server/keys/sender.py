"""Who sent a request: to whom approvals and remembered answers are bound, and for fair shares."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.http.returning import PARENT, SESSION
from caesura.runtime.server.keys.key import UNDECODABLE, tenant_of
from caesura.scheduler.admission.programs import MAX_NAME_CHARACTERS, Origin

IDEMPOTENCY_KEY = "Idempotency-Key"
XARGS = "vllm_xargs"
"""The field of vLLM's own routes that becomes `extra_args`."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a request, as digests, and where it comes from. Keys are never kept."""

    asker: str
    """For questions to people."""
    owner: str
    """For continuing from the tokens of an answer."""
    origin: Origin

    @classmethod
    def of(cls, user: str | None, headers: Mapping[str, str], name: str) -> "Sender":
        """Return the sender of a request; `name` is the session's. Raises `ApiError`."""
        return cls(asker_of(user, headers), owner_of(user, headers), origin_of(headers, name))

    def told(self) -> dict[str, Any]:
        """Return the sender for the journal."""
        return asdict(self)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> "Sender":
        """Return the sender that a journal tells of."""
        return cls(str(told["asker"]), str(told["owner"]), Origin(**told["origin"]))


def authorization_of(headers: Mapping[str, str]) -> str | None:
    """Return the header `Authorization`, or one with the key in Anthropic's `x-api-key`."""
    key = headers.get("x-api-key")
    return headers.get("Authorization") or (f"Bearer {key}" if key else None)


def shown_key(headers: Mapping[str, str]) -> str:
    """Return the API key that a request shows, as it was written, or an empty text."""
    _, _, shown = (authorization_of(headers) or "").partition(" ")
    # Headers are read as Latin-1, whose own white space may be a part of a character of UTF-8.
    return shown.encode("latin-1").strip().decode(errors=UNDECODABLE)


def tenant_in(headers: Mapping[str, str]) -> str:
    """Return the tenant of a request: a digest of the API key that it shows, or an empty text."""
    return tenant_of(shown_key(headers))


def origin_of(headers: Mapping[str, str], name: str = "") -> Origin:
    """Return a request's origin; `name` is the session's name unless a header says another.

    Raises `ApiError` for a name that is too long.
    """
    named, parent = headers.get(SESSION, ""), headers.get(PARENT, "")
    for header, text in ((SESSION, named), (PARENT, parent)):
        if len(text) > MAX_NAME_CHARACTERS:
            raise invalid(
                f"The header {header} has {len(text)} characters: send at most"
                f" {MAX_NAME_CHARACTERS}."
            )
    return Origin(tenant_in(headers), named or name, parent)


def with_origin(body: bytes, origin: Origin) -> bytes:
    """Return the body of a request to vLLM's own routes with its origin in `vllm_xargs`.

    A body that does not name this field gets it at its end, without being parsed. There it also
    replaces a field whose name is spelled with escapes, since the last of two fields counts.
    """
    told = origin.to_wire()
    if not told:
        return body
    if XARGS.encode() not in body:
        end = body.rstrip()
        if not end.endswith(b"}") or end[:-1].rstrip().endswith(b"{"):
            return body
        return end[:-1] + f', "{XARGS}": {json.dumps(told)}}}'.encode()
    data: dict[str, Any] = json.loads(body)
    given = data.get(XARGS)
    if given is not None and not isinstance(given, dict):
        return body  # vLLM refuses it
    return json.dumps({**data, XARGS: {**(given or {}), **told}}).encode()


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
