"""The search tool: finds passages in a corpus, in Wikipedia or through a service."""

import asyncio
from dataclasses import replace

from caesura.tools.search.backends import make_backend
from caesura.tools.search.results import results_text
from caesura.tools.search.settings import Settings
from caesura.tools.services import Services
from caesura.tools.tool import Tool, tool

__all__ = ["Settings", "make"]

ABOUT = "Search for facts; returns short passages with their sources."
_EXPECTED_SECONDS = {"wikipedia": 0.8, "http": 0.8}
_EXPECTED_SECONDS_HERE = 0.01


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool, for `Toolset`; raises SetupError where its back end cannot be used."""
    backend = make_backend(settings, services)
    services.at_end(backend.aclose)
    elsewhere = settings.backend in _EXPECTED_SECONDS

    @tool(
        description=settings.about or ABOUT,
        retries=1 if elsewhere else 0,
        safe_to_repeat=True,
        concurrency=4 if elsewhere else None,
    )
    async def search(query: str) -> str:
        """Search.

        Args:
            query: a few key words.
        """
        hits = await backend.search(query, settings.results)
        return await asyncio.to_thread(results_text, query, hits, settings.result_tokens)

    return replace(
        search,
        expected_seconds=_EXPECTED_SECONDS.get(settings.backend, _EXPECTED_SECONDS_HERE),
    )
