"""The `caesura` command: ask, chat, serve, demo, doctor."""

from caesura.runtime.cli.app import main

__all__ = ["main"]
