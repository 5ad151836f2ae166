"""A request as it travels from the front to a server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

from caesura.scheduler.policy.routing import Asked

PLAIN = ("type", "http_version", "method", "scheme", "path", "raw_path", "query_string", "headers")
"""The fields of an ASGI scope that are plain data, and are sent on."""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """An HTTP request with its whole body, and what it tells about where it belongs."""

    asked: Asked
    scope: Mapping[str, Any]
    body: bytes


def plain_scope(scope: Scope) -> dict[str, Any]:
    """Return the part of a request's scope that another process can use."""
    plain = {name: scope[name] for name in PLAIN if scope.get(name) is not None}
    client = scope.get("client")
    return {
        **plain,
        "asgi": {"version": "3.0"},
        "root_path": "",
        "headers": [(bytes(name), bytes(value)) for name, value in scope["headers"]],
        "client": tuple(client) if client else None,
        "server": None,
    }
