"""The KV of paused requests: what is known of it, what things cost, and what is done with it."""
