"""The ask_model tool: asks another language model, behind any OpenAI-style server."""

from caesura.tools.model.ask import Settings, ask_model, make

__all__ = ["Settings", "ask_model", "make"]
