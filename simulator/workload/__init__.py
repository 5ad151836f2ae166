"""Workloads of the simulator: sequences of sessions, each a function of a spec and a seed.

`names` makes a workload from its spec. The content of sessions (`papers`, `replay`, `records`) is
drawn separately from their arrivals (`arrivals`).
"""
