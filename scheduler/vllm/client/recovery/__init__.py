"""Sessions that survive the death of the engine's process."""
