"""What to do with the KV cache of paused requests, compared under load.

The same sessions, arriving at the same moments, are served by one engine after the other: vLLM as
it comes (`stock`: every segment between two tool calls is a new request, and prefix caching finds
what is left of its context), and Caesura's scheduler with each of its handlings and some rankings.
"""

STOCK = "stock"
OFFLOAD = "stock-offload"
"""vLLM's own scheduler with its native offloading of KV to the host, which needs a GPU."""

SYSTEMS: dict[str, dict[str, str] | None] = {
    STOCK: None,
    OFFLOAD: None,
    "caesura": {},
    "fcfs": {"handling": "caesura", "ranking": "fcfs"},
    "caesura-ranking": {"handling": "caesura", "ranking": "caesura"},
    "lamps-infercept": {"handling": "infercept", "ranking": "lamps"},
    **{
        name: {"handling": name, "ranking": "fcfs"}
        for name in ("preserve", "discard", "swap", "ttl", "infercept", "lamps")
    },
}
"""Caesura's settings by system; None is vLLM's own scheduler, and `caesura` all defaults."""
