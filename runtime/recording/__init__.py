"""Recordings: one stream of plain entries, kept in a file, sent to the page, exported and read.

`recorder` takes entries from the engine's records (`caesura.runtime.launch`) and from spans
(`spans`) and hands them to a thread; `store` keeps them, `reading` finds them again, `export`
writes them for others.
"""
