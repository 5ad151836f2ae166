"""Hosts of engines: local processes, devices that sleep, and clusters."""
