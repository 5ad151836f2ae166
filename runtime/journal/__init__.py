"""The journal of runs: what a server needs to go on with a run after it, or its engine, has died.

A run writes entries: its request, its tokens, its calls and their results. Another process that
finds them drives the same run again, without the engine and without running the calls, up to the
place where they end.
"""
