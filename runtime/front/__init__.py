"""Several servers: which of them gets a request, and the names by which a session returns."""
