"""A search engine and a page on this machine, and the tools that ask them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.config.toolset import Toolset
from caesura.tools.services import Services
from caesura.tools.tool import Tool

FOUND = [{"title": "Oak", "url": "https://trees.example/oak", "content": "Oaks bear acorns."}]
"""What every search finds."""


class SearchEngine:
    """Answers as SearXNG does, and has a page."""

    search: Tool
    fetch: Tool
    address: str

    def __init__(self) -> None:
        self.status = 200
        self.queries: list[str] = []

    async def find(self, request: web.Request) -> web.Response:
        self.queries.append(request.query["q"])
        return web.json_response({"results": FOUND}, status=self.status)

    async def page(self, request: web.Request) -> web.Response:
        text = "<title>Beech</title><p>Its bark is smooth.</p>"
        return web.Response(text=text, content_type="text/html", status=self.status)


@pytest.fixture
async def search_engine(tmp_path: Path) -> AsyncIterator[SearchEngine]:
    engine = SearchEngine()
    app = web.Application()
    app.router.add_get("/search", engine.find)
    app.router.add_get("/beech", engine.page)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    engine.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    services = Services(ArtifactStore(tmp_path / "artifacts"), tmp_path / "data", True)
    own: dict[str, Any] = {"retries": 0, "cache_hours": 0, "url": engine.address}
    settings = {"web_search": own, "web_fetch": {"retries": 0}}
    async with Toolset(services, settings, enabled=list(settings)) as tools:
        engine.search, engine.fetch = tools.make("web_search"), tools.make("web_fetch")
        yield engine
    await runner.cleanup()
