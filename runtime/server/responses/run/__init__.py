"""Runs of responses: their events, what waits for approvals, and what is told of them."""
