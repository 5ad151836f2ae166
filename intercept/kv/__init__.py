"""The KV cache of paused requests: views of it, the cost of each alternative, and the handlings."""
