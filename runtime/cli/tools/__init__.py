"""`caesura tools`: lists the tools, and tests whether they work here."""
