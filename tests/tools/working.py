"""The tests' module of tools, `worker_module.py`, which a worker imports by its name."""

from pathlib import Path

HERE = {"PYTHONPATH": str(Path(__file__).parent)}
"""What lets a worker import it."""
MODULE = "worker_module"
