"""`POST /v1/chat/completions`: from a request to a run, and from its events to an answer."""
