"""Searching for plans."""
