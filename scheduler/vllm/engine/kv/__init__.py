"""The KV of paused requests: what handlings see of it, and how blocks are copied and released."""
