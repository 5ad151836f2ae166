"""Recordings as files: an HTML page, JSON lines, or a trace for Perfetto."""
