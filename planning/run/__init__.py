"""Carrying a plan out on engines."""
