"""The waiting requests by rank, their sessions, and admission to a step."""
