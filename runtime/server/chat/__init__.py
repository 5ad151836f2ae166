"""`POST /v1/chat/completions`: turns a request into a run, and its events into an answer."""
