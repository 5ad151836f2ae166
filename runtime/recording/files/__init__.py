"""Recordings as files: a page, JSON lines, a trace for Perfetto."""
