"""The OpenAI-style HTTP endpoint: `create_app` builds the application, `serve` runs it."""

from caesura.runtime.server.app import create_app
from caesura.runtime.server.listen import serve

__all__ = ["create_app", "serve"]
