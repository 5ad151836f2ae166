"""Paired measurements: ratios in one run, never absolute times."""
