"""What it is worth to know how long another model will work: see `python -m` on this package."""
