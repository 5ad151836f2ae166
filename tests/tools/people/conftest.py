"""People on a file of the test's own, and calls through the real dispatcher."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.tools.people.asking import Asking


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Asking]:
    async with AsyncExitStack() as stack:
        yield Asking(tmp_path / "people.sqlite", stack)
