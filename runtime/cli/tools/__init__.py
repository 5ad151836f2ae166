"""`caesura tools`: which tools there are, and whether they work here."""
