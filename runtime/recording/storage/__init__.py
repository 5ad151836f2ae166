"""The SQLite file of recordings: writing in batches, bounds on its size and age, and reading."""
