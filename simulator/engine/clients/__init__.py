"""The clients of simulated sessions: their requests, their waits, and their progress."""
