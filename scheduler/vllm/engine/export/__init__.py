"""Records of what the engine does: written in the engine, exported in the API process."""
