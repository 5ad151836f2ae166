"""Policies of queues, pure: ranking, admission, shares, and which engine serves a request."""
