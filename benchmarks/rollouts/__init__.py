"""Rollouts for training: groups of samples of the same prompts, which call tools."""
