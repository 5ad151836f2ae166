"""Swapping: our KV connector, which copies KV cache to host memory and back beside steps."""
