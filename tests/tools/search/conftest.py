from pathlib import Path

import pytest

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.services import Services
from tests.tools.net.sites import site

__all__ = ["services", "site"]


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return Services(ArtifactStore(tmp_path / "artifacts"), tmp_path / "data")
