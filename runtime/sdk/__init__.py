"""The Python SDK: agents, their tools and sessions, and the engines that they share."""
