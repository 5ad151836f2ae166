"""The simulator's engine: vLLM's scheduler, or ours, in simulated time.

Importing it imports vLLM, which takes seconds.
"""

from caesura.simulator.engine.run import simulate

__all__ = ["simulate"]
