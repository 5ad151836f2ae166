"""vLLM as the API process sees it: an engine whose sessions take messages and yield events.

`engine` starts nothing by itself (`launch` does); a `session` renders once (`render`), keeps a
request of vLLM's alive over its pauses (`live`), and reads what it decodes (`reader`, over vLLM's
tool parsers in `parse`).
"""
