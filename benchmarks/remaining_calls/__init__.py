"""How well predictors know what is left of recorded sessions, learned online in order of time."""
