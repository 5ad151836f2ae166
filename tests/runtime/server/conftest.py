"""A real server over a scripted engine, and tools of both kinds."""

from tests.kit.server import double, hanging, serve_script, weather

__all__ = ["double", "hanging", "serve_script", "weather"]
