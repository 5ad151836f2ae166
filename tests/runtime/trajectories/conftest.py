"""A real server over a scripted engine."""

from tests.kit.server import serve_script

__all__ = ["serve_script"]
