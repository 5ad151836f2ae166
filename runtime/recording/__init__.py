"""Recordings: streams of plain entries, which are stored in a file, shown in the page and exported.

`recorder` takes entries from the engine's records (`caesura.runtime.launch`) and from spans
(`spans`), and writes them in a thread. `storage.store` stores them, `storage.reading` reads them
and `files.export` exports them.
"""
