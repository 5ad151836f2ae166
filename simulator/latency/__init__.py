"""The simulated machines, and the time of a step on each."""
