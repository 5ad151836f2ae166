"""`caesura serve`."""
