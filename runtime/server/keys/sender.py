"""Who sent a request: found once, at the door, from the headers.

Approvals and remembered answers are bound to the sender, and fair shares and limits are counted
for it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.requests import HTTPConnection

from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.http.lineage import is_final, named_by
from caesura.runtime.server.keys.key import UNDECODABLE, Key, tenant_of
from caesura.scheduler.programs import MAX_NAME_CHARACTERS, NO_ORIGIN, PARENT, SESSION, Origin

SENDER = "caesura.sender"
"""Where a request's scope holds its `Sender`."""
IDEMPOTENCY_KEY = "Idempotency-Key"
XARGS = "vllm_xargs"
"""The field of vLLM's own routes that becomes `extra_args`."""
_TRACE = ("traceparent", "tracestate")


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the headers of a request show of its sender, as it was written."""

    authorization: str | None = None
    idempotency_key: str | None = None
    """A text that the client chooses, and repeats whenever it repeats this request."""
    named: Origin = NO_ORIGIN
    """The session and its parent, by their names."""
    is_final: bool = False
    """Whether the session ends with this request."""

    @property
    def key(self) -> str:
        """The API key, or an empty text."""
        _, _, shown = (self.authorization or "").partition(" ")
        # Headers are read as Latin-1, whose own white space may be a part of a character of UTF-8.
        return shown.encode("latin-1").strip().decode(errors=UNDECODABLE)

    @property
    def scheme(self) -> str:
        """The scheme in front of the key, in lower case."""
        return (self.authorization or "").partition(" ")[0].lower()

    def asker(self, user: str | None) -> str:
        """Return a digest of key, user and idempotency key; empty if the last two are missing.

        The API key does not suffice alone, since all clients share one key.
        """
        if not user and not self.idempotency_key:
            return ""
        text = ["http", self.authorization, user or None, self.idempotency_key or None]
        return _digest(text)

    def owner(self, user: str | None) -> str:
        """Return a digest of the API key and OpenAI's field `user`; empty without both."""
        if not user and not self.authorization:
            return ""
        return _digest(["owner", self.authorization, user or None])


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a request, as digests, and where it comes from. API keys are never written.

    The sender of a run that a later process goes on with has no key.
    """

    asker: str = ""
    """For questions to people."""
    owner: str = ""
    """For continuing from the tokens of an answer: only a later request of the same owner does."""
    origin: Origin = field(default_factory=Origin)
    """For fair shares."""
    key: Key | None = field(default=None, repr=False)
    """The key of this server that the request shows."""
    trace: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The headers that name the span which the request belongs to."""
    request_id: str = ""
    """The id of the request, which its answer has in `X-Request-Id`."""
    shown: _Shown = field(default_factory=_Shown, repr=False)

    @property
    def tenant(self) -> str:
        """The digest of the API key that the request shows, or an empty text."""
        return self.origin.tenant

    @property
    def ended(self) -> Origin | None:
        """The session that ends with this request, if its headers name it and say so."""
        shown = self.shown
        if not (shown.is_final and 0 < len(shown.named.session) <= MAX_NAME_CHARACTERS):
            return None
        return Origin(self.tenant, shown.named.session)

    def of_user(self, user: str | None, session: str = "", told: Origin = NO_ORIGIN) -> "Sender":
        """Return the sender of a request whose body names a `user`, with the session of its run.

        The session and its parent are those that the headers name, or else those `told` by the
        body; a request without a name has the name `session`. Raises `ApiError` for a name that is
        too long.
        """
        shown = self.shown
        named = shown.named
        for header, text in ((SESSION, named.session), (PARENT, named.parent)):
            if len(text) > MAX_NAME_CHARACTERS:
                raise invalid(
                    f"The header {header} has {len(text)} characters: send at most"
                    f" {MAX_NAME_CHARACTERS}."
                )
        name = named.session or told.session or session
        origin = Origin(self.tenant, name, named.parent or told.parent)
        return replace(self, asker=shown.asker(user), owner=shown.owner(user), origin=origin)

    def to_wire(self) -> dict[str, Any]:
        """Return the sender for the journal."""
        origin = {"tenant": self.tenant, "name": self.origin.session, "parent": self.origin.parent}
        told = {"asker": self.asker, "owner": self.owner, "origin": origin}
        return {**told, "request_id": self.request_id}

    @classmethod
    def from_wire(cls, told: Mapping[str, Any]) -> "Sender":
        """Return the sender that a journal tells of."""
        origin = told["origin"]
        known = Origin(str(origin["tenant"]), str(origin["name"]), str(origin["parent"]))
        request_id = str(told.get("request_id", ""))
        return cls(str(told["asker"]), str(told["owner"]), known, request_id=request_id)


def found_sender(headers: Mapping[str, str], keys: Mapping[str, Key]) -> Sender:
    """Return the sender that a request's headers show; `keys` are those of the server, by tenant.

    Its API key is in `Authorization`, or in Anthropic's `x-api-key`.
    """
    key = headers.get("x-api-key")
    shown = _Shown(
        headers.get("Authorization") or (f"Bearer {key}" if key else None),
        headers.get(IDEMPOTENCY_KEY),
        named_by(headers),
        is_final(headers),
    )
    tenant = tenant_of(shown.key)
    return Sender(
        shown.asker(None),
        shown.owner(None),
        Origin(tenant),
        keys.get(tenant),
        {low: text for name, text in headers.items() if (low := name.lower()) in _TRACE},
        shown=shown,
    )


def sender_of(request: HTTPConnection) -> Sender:
    """Return the sender of a request that has passed the door."""
    sender: Sender = request.scope[SENDER]
    return sender


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


def _digest(parts: list[str | None]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
