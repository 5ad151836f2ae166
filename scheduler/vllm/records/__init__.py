"""Records of events in the engine, which leave it with the connector's statistics."""
