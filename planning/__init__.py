"""Applications of several models on one budget of devices: plans, and their runs."""
