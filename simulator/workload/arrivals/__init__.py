"""The arrivals of sessions: from a random process, or from a trace."""
