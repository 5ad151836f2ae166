"""Records of what happens in the engine, from the facts to the connector's statistics."""
