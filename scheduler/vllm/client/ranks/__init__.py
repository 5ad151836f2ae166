"""Data-parallel engines behind one client: which of them serves a request, and their states."""
