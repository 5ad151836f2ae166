"""Evaluations: cases, checks of answers, and what came of them."""
