"""Sending requests to engines: what is ready, what it asks, and where it goes."""
