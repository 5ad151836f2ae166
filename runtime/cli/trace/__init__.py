"""`caesura trace`: recordings in the terminal and as files."""
