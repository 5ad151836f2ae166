"""Stores in a directory of the test's own, and a clock that the test winds."""

from pathlib import Path

import pytest

from caesura.runtime.recording.storage import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "traces.sqlite"


@pytest.fixture
def store(path: Path) -> Store:
    return Store(path)
