"""Engines that run side by side, whose sessions ask each other."""

from caesura.simulator.engine.coupled.run import Neighbour, simulate_together

__all__ = ["Neighbour", "simulate_together"]
