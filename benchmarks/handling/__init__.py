"""What to do with the KV cache of paused requests, compared under load.

The same sessions, arriving at the same moments, are served by one engine after the other: vLLM as
it comes (`stock`: every segment between two tool calls is a new request, and prefix caching finds
what is left of its context), and Caesura's scheduler with each of its handlings.
"""

STOCK = "stock"
HANDLINGS = ("preserve", "discard", "swap", "ttl", "infercept", "lamps", "caesura")
SYSTEMS = (STOCK, *HANDLINGS)
