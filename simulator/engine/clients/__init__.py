"""The clients of simulated sessions: when they send, what they wait for, how far they are."""
