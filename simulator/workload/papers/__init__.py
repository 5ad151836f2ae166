"""Workloads of papers, drawn from the papers' tables."""
