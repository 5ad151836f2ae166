"""Runs tool calls in parallel, within limits, and returns every failure as data."""
