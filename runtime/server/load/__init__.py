"""The work that waits for the engine, predicted from its records, and the bound on it."""
