"""The API process's side of vLLM: an engine whose sessions take messages and yield events.

`launch` starts an `engine`. A `session` renders each message once (`rendering`) and keeps its vLLM
request alive over pauses (`request`). It parses the output with a reader, which uses vLLM's tool
parsers (`parsing`).
"""
