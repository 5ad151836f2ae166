"""The speak tool: turns text into a sound file, by espeak-ng, a piper voice or a service."""

from caesura.tools.speech.speak import Settings, make

__all__ = ["Settings", "make"]
