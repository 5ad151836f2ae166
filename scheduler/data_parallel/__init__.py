"""Which of several data-parallel engines serves a request, pure."""
