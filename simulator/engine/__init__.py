"""The simulator's engine: vLLM's scheduler or Caesura's, in simulated time.

Importing this package imports vLLM, which takes seconds.
"""

from caesura.simulator.engine.run import simulate

__all__ = ["simulate"]
