"""vLLM's own HTTP server, as an ASGI application on an engine that Caesura started."""
