"""Text worlds to act in: ALFWorld's household games, or a Gymnasium environment.

The games run in processes of their own, one for each session that plays, and end with it.
"""

from caesura.tools.environment.settings import Settings
from caesura.tools.environment.tool import make

__all__ = ["Settings", "make"]
