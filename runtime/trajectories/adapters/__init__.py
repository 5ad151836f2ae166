"""Trajectories in the shapes of trainers: pure functions to plain data, without their packages."""
