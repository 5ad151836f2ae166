"""One run: its loop of turns and calls, its limits, and its history."""
