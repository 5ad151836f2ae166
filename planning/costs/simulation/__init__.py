"""The request scheduling simulator (SamuLLM, section 4.1): many steps at once."""
