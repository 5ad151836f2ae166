"""The engine's process: vLLM's scheduler with pauses, and its collaborators."""
