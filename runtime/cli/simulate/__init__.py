"""`caesura simulate` and `caesura replay`: studies in the terminal."""
