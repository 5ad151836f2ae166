"""Anthropic's `POST /v1/messages`: request, answer, and handler."""
