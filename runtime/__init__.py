"""The agent runtime: the Python SDK, sessions, the OpenAI-style endpoint and the command line."""
