"""Where a request comes from, for fair shares: its tenant, and the program that it belongs to."""

import json
from collections.abc import Mapping
from typing import Any

from caesura.runtime.server.http.access import shown_key
from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.keys.key import tenant_of
from caesura.scheduler.admission.programs import MAX_NAME_CHARACTERS, Origin

SESSION, PARENT = "Caesura-Session", "Caesura-Parent"
"""The headers with which a client names a session, and the session that started it."""

XARGS = "vllm_xargs"
"""The field of vLLM's own routes that becomes `extra_args`."""


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
