"""The tool `web_search`: asks a search engine of the web for pages.

Its result has a block of lines for each page: number and title, address, snippet. `pages_in` reads
them again, for APIs that tell the pages apart.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from caesura.tools.net import HttpClient
from caesura.tools.search.cache import Cache
from caesura.tools.search.results import Hit, results_text, short
from caesura.tools.search.service import Service
from caesura.tools.search.settings import HttpSettings
from caesura.tools.services import Services, SetupError, ToolSettings
from caesura.tools.tool import Tool

__all__ = ["Settings", "make"]

BRAVE = "https://api.search.brave.com"
MAX_ADDRESS_CHARACTERS = 1_000
"""A page with a longer address is left out."""
_FILTERED = 20
"""So many results are asked for where some may be of domains that are not wanted."""
_SIZES = {"low": 0.5, "medium": 1.0, "high": 2.0}
_TITLE = re.compile(r"\[\d+\] (.*)")


class Settings(ToolSettings):
    """Settings of `[tools.web_search]`."""

    backend: Literal["searxng", "brave", "http"] = Field(
        "searxng", description="the kind of search engine"
    )
    url: str | None = Field(None, description="the address of the SearXNG instance, or of Brave's")
    key: str | None = Field(None, description="Brave's key; ${NAME} is an environment variable")
    http: HttpSettings | None = Field(None, description="any other service that answers with JSON")
    site_operators: bool = Field(True, description="whether a query may hold site: and -site:")
    results: int = Field(5, ge=1, le=20, description="maximum pages per search")
    result_tokens: int = Field(
        800, ge=40, le=8_000, description="budget for all pages, at 4 characters a token"
    )
    allow_private: bool = Field(False, description="allow a service whose address is not public")
    cache_hours: float = Field(1.0, ge=0, le=8_760, description="how long answers are cached")

    def request(self) -> HttpSettings:
        """Return the request that asks the service; raise `ValueError` if a setting is missing."""
        match self.backend:
            case "searxng" if self.url:
                url = f"{self.url.rstrip('/')}/search?q={{query}}&format=json"
                return HttpSettings.model_validate({"url": url, "text": "content"})
            case "brave" if self.key:
                host = (self.url or BRAVE).rstrip("/")
                query = "q={query}&count={limit}&text_decorations=false"
                given = {
                    "url": f"{host}/res/v1/web/search?{query}",
                    "headers": {"X-Subscription-Token": self.key},
                    "results": "web.results",
                    "text": "description",
                }
                return HttpSettings.model_validate(given)
            case "http" if self.http:
                return self.http
        needed = {"searxng": "url", "brave": "key", "http": "[tools.web_search.http]"}
        raise ValueError(f"backend = {self.backend!r} needs {needed[self.backend]}")


@dataclass(frozen=True, slots=True)
class Domains:
    """The pages that are wanted: those of allowed domains (all if empty), and of no blocked one.

    A domain stands for its subdomains too. A path behind it is the begin of the pages' paths.
    """

    allowed: Sequence[str] = ()
    blocked: Sequence[str] = ()

    def hold(self, address: str) -> bool:
        """Return whether a page is wanted."""
        if any(_is_of(address, domain) for domain in self.blocked):
            return False
        return not self.allowed or any(_is_of(address, domain) for domain in self.allowed)

    def operators(self) -> str:
        """Return what a query says of the domains, as most search engines read it."""
        wanted = " OR ".join(f"site:{_bare(domain)}" for domain in self.allowed)
        both = [f"({wanted})" if len(self.allowed) > 1 else wanted]
        both += [f"-site:{_bare(domain)}" for domain in self.blocked]
        return " ".join(filter(None, both))


def _bare(domain: str) -> str:
    return domain.strip().lower().partition("://")[2] or domain.strip().lower()


def _is_of(address: str, domain: str) -> bool:
    host, _, path = _bare(domain).rstrip("/").partition("/")
    try:
        page = urlsplit(address)
        of_host = (page.hostname or "") == host or (page.hostname or "").endswith(f".{host}")
    except ValueError:
        return False
    return of_host and (not path or f"{page.path}/".startswith(f"/{path}/"))


class WebSearch:
    """Searches the web through a service, and writes what it found for the model."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._settings = settings

    async def __call__(
        self,
        query: str,
        allowed_domains: Sequence[str] = (),
        blocked_domains: Sequence[str] = (),
        context_size: str | None = None,
    ) -> str:
        """Return the pages that a search found; raises HttpRefused and HttpUnavailable.

        `context_size` is `low`, `medium` or `high`, for a half, the whole or twice the budget.
        """
        settings, domains = self._settings, Domains(allowed_domains, blocked_domains)
        said = domains.operators() if settings.site_operators else ""
        asked = f"{query} {said}" if said else query
        most = max(_FILTERED, settings.results) if domains != Domains() else settings.results
        hits = [hit for hit in await self._service.search(asked, most) if _is_page(hit, domains)]
        tokens = int(settings.result_tokens * _SIZES.get(context_size or "medium", 1.0))
        shown = hits[: settings.results]
        return await asyncio.to_thread(results_text, query, shown, tokens, _head)


def _is_page(hit: Hit, domains: Domains) -> bool:
    address = hit.source
    begins = address.startswith(("http://", "https://")) and len(address.split()) == 1
    return begins and len(address) <= MAX_ADDRESS_CHARACTERS and domains.hold(address)


def _head(hit: Hit) -> str:
    return f"{short(hit.title) or 'Untitled'}\n{hit.source}"


def pages_in(text: str) -> list[Hit]:
    """Return the pages of a result; one whose address was cut off is left out."""
    pages = []
    for block in text.split("\n\n"):
        head, _, rest = block.partition("\n")
        address, _, snippet = rest.partition("\n")
        title = _TITLE.fullmatch(head)
        if title and address and " " not in address:
            pages.append(Hit(title[1], address, snippet))
    return pages


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool, for `Toolset`; raises SetupError where the service is not configured."""
    client = HttpClient(
        allow_private=services.allow_private or settings.allow_private,
        connections_per_host=2,
        timeout_seconds=12.0,
        max_bytes=2 * 2**20,
    )
    cache = Cache(services.data / "web-search-cache.sqlite", settings.cache_hours * 3600)
    try:
        service = Service(settings.request(), client, cache)
    except ValueError as error:
        raise SetupError(f"[tools.web_search]: {error}") from None
    services.at_end(service.aclose)
    search = WebSearch(service, settings)
    query: dict[str, Any] = {"type": "string", "description": "a few key words, or a question"}
    return Tool(
        name="web_search",
        description="Search the web; returns pages with their addresses and a part of their text.",
        parameters={
            "type": "object",
            "properties": {"query": query},
            "required": ["query"],
            "additionalProperties": False,
        },
        call=search.__call__,
        function=search,
        retries=1,
        safe_to_repeat=True,
        concurrency=4,
        expected_seconds=0.8,
    )
