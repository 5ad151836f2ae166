"""The settings and the parts of a server, told apart by their names."""

from dataclasses import fields
from typing import Any

from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.load.options import ServerOptions

_PARTS = {each.name for each in fields(ServerParts)}


def settings(**given: Any) -> tuple[ServerOptions, ServerParts]:
    """Return the last two parameters of `create_app` and of `serve`."""
    parts = {name: given.pop(name) for name in _PARTS & given.keys()}
    return ServerOptions(**given), ServerParts(**parts)
