"""Copies of KV between device and host in simulated time: connectors, link and workers."""
