"""Workloads as papers describe them, drawn from their tables."""
