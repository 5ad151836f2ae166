"""The `caesura` command: ask, chat, serve, calibrate, demo, doctor, simulate, replay."""

from caesura.runtime.cli.app import main

__all__ = ["main"]
