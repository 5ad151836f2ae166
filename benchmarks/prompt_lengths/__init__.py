"""Predictors of output lengths from prompts, on recorded prompts and answers."""
