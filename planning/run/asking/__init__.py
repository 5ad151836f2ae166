"""Models that ask other models of the same run, by a tool of their server."""
