"""KV cache of paused requests: kept, discarded block by block, or copied to the host."""
