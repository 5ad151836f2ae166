"""The simulator against the real engine: the same sessions, served on the CPU and simulated."""
