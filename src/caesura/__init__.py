"""Caesura: an async agent runtime and scheduler plugin for tool-calling models, on stock vLLM."""

__version__ = "0.1.0"
