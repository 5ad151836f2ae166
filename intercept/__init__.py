"""Interception: detecting a call in a token stream, and deciding what happens to the KV cache.

Everything in this package is pure: no clock, no randomness, no vLLM, no logging.
"""
