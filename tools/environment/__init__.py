"""Text worlds to act in: ALFWorld's household games, or a Gymnasium environment.

Games run in worker processes, one for each session that plays; a process ends with its session.
"""

from caesura.tools.environment.tool import Settings, make

__all__ = ["Settings", "make"]
