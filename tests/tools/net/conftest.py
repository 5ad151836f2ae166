from collections.abc import AsyncIterator

import pytest

from caesura.tools.net import HttpClient
from tests.tools.net.sites import site

__all__ = ["client", "public", "site"]


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    """A client that may reach the site."""
    client = HttpClient(allow_private=True, max_bytes=100_000)
    yield client
    await client.aclose()


@pytest.fixture
async def public() -> AsyncIterator[HttpClient]:
    """A client as it is by default."""
    client = HttpClient(timeout_seconds=60)
    yield client
    await client.aclose()
