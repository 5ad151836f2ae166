"""A recording to replay, and servers that replay it."""

from tests.kit.server import serve_script
from tests.runtime.whatif.stretches import store

__all__ = ["serve_script", "store"]
