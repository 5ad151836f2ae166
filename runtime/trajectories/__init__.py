"""Trajectories: the tokens of sessions as a tree, for training; their growth, and their files."""
