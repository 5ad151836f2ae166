"""One run: the loop of turns and calls, its limits, and the history that it writes."""
