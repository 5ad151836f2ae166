"""Worker processes that can be killed, for work that may hang or crash: rendering, games.

A worker runs the functions of one module, called by name in JSON lines over pipes. It is killed,
with every process that it started, when a call is cancelled or times out.
"""

from caesura.tools.worker.pool import WorkerPool
from caesura.tools.worker.process import Worker, WorkerDied, WorkerFailed

__all__ = ["Worker", "WorkerDied", "WorkerFailed", "WorkerPool"]
