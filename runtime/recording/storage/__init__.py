"""The SQLite file of recordings: written in batches, kept within bounds, and read."""
