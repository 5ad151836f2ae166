"""Rows of the table of call formats: what a row says, and the families that share a form."""
