"""A process's tracing set up anew for each test, and servers to trace."""

from tests.kit.server import hanging, serve_script
from tests.kit.spans import set_up_anew, spans

__all__ = ["hanging", "serve_script", "set_up_anew", "spans"]
