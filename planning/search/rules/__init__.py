"""Rules that choose the models of the next stage."""
