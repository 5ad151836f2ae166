"""API keys: their names, what each may use, and what keeps their prefix caches apart."""
