"""Inputs made by seed from our own schemas and from valid ones, and what must become of them."""
