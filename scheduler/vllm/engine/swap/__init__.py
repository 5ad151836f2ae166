"""The KV connector, which copies KV cache to host memory and back while steps run."""
