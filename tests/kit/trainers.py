"""The trainers' packages, for tests that run where they are: `make trainers` wants all it locks."""

import importlib
import os
from typing import Any

import pytest

LEFT_OUT = ("skyrl", "slime")
"""What requirements/trainers.in leaves out, and says why."""


def needs(module: str) -> Any:
    """Return a module of a trainer; skip the test where it is not installed."""
    if "CAESURA_REQUIRE_TRAINERS" in os.environ and module.split(".")[0] not in LEFT_OUT:
        return importlib.import_module(module)
    return pytest.importorskip(module, exc_type=ImportError)
