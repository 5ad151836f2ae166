"""Many replicas of one engine behind a router, on one virtual time, in one or more processes."""

from caesura.simulator.engine.replicas.run import simulate_replicas

__all__ = ["simulate_replicas"]
