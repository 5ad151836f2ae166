"""Requests: their schema, their tools, and the plan of their run."""
