"""The `caesura` command. Each of its commands is imported when it is called."""

from caesura.runtime.cli.app import main

__all__ = ["main"]
