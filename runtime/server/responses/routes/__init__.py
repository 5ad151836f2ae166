"""The routes of responses and conversations."""
