"""The pause: seeing a call in a token stream, and what happens to its KV cache meanwhile.

Everything in this room is pure: no clock, no randomness, no vLLM, no logging.
"""
