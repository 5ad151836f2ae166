"""Predictions in a simulation, compared with the workload, which is the truth."""
