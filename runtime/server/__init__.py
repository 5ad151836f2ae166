"""The OpenAI-style HTTP endpoint: `create_app` builds the application, `serve` runs it."""

from caesura.runtime.server.app import ServerParts, create_app
from caesura.runtime.server.listen import serve
from caesura.runtime.server.load.options import ServerOptions

__all__ = ["ServerOptions", "ServerParts", "create_app", "serve"]
