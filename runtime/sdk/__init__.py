"""The Python SDK: agents, their tools and sessions, and their shared engines."""
