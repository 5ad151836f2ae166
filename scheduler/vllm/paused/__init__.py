"""The KV cache of paused requests, which is preserved, discarded or swapped block by block."""
