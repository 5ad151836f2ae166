"""Recordings: streams of plain entries, which are stored in a file, shown in the page and exported.

`recorder` takes entries from the engine's records (`caesura.runtime.launch`) and from spans
(`caesura.runtime.tracing.spans`), and writes them in a thread. `storage` is their file, `catalog`
reads and curates what is in it, and `files` exports it.
"""
