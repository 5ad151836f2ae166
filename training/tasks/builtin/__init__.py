"""Questions for the other built-in tools."""
