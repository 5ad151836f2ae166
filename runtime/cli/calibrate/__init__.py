"""`caesura calibrate`."""
