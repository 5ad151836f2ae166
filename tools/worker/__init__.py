"""Work in processes of its own, which can be killed: rendering, games, whatever may hang or crash.

A worker runs one module's functions, asked for by name, in JSON lines over pipes. It is killed
with everything that it has started when a call is cancelled or times out.
"""

from caesura.tools.worker.pool import WorkerPool
from caesura.tools.worker.process import Worker, WorkerDied, WorkerFailed

__all__ = ["Worker", "WorkerDied", "WorkerFailed", "WorkerPool"]
