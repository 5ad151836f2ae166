"""The back ends of the search tool, by name."""

from caesura.tools.net import USER_AGENT, HttpClient
from caesura.tools.search.cache import Cache
from caesura.tools.search.corpus import Reader, corpus_to_search
from caesura.tools.search.derived import Derived
from caesura.tools.search.results import Backend
from caesura.tools.search.service import Service
from caesura.tools.search.settings import Settings
from caesura.tools.search.wikipedia import Wikipedia, user_agent
from caesura.tools.services import Services, SetupError, require

_CONNECTIONS = 2
"""Connections to one service at a time: few, as services ask."""
_TIMEOUT_SECONDS = 12.0


def make_backend(settings: Settings, services: Services) -> Backend:
    """Return the back end that the settings name.

    Raises SetupError where some settings, a corpus or a package are missing.
    """
    if settings.backend in ("bm25s", "tantivy"):
        require(settings.backend, "search", "search")
    try:
        if settings.backend == "wikipedia":
            return _wikipedia(settings, services)
        if settings.backend == "http":
            return _service(settings, services)
        reader = Reader(corpus_to_search(services.data, settings.corpus))
        return reader if settings.backend == "corpus" else Derived(reader, settings.backend)
    except ValueError as error:  # includes CorpusError
        raise SetupError(f"[tools.search]: {error}") from None


def _wikipedia(settings: Settings, services: Services) -> Wikipedia:
    if settings.wikipedia is None:
        raise ValueError(
            'backend = "wikipedia" needs contact = "you@example.org" in [tools.search.wikipedia]: '
            "Wikipedia requires programs to name a contact of their operator"
        )
    client = _client(settings, services, user_agent(settings.wikipedia))
    return Wikipedia(settings.wikipedia, client, _cache(settings, services))


def _service(settings: Settings, services: Services) -> Service:
    if settings.http is None:
        raise ValueError('backend = "http" needs [tools.search.http] with a url')
    return Service(settings.http, _client(settings, services), _cache(settings, services))


def _client(settings: Settings, services: Services, agent: str = USER_AGENT) -> HttpClient:
    return HttpClient(
        allow_private=services.allow_private or settings.allow_private,
        connections_per_host=_CONNECTIONS,
        timeout_seconds=_TIMEOUT_SECONDS,
        max_bytes=2 * 2**20,
        user_agent=agent,
    )


def _cache(settings: Settings, services: Services) -> Cache:
    return Cache(services.data / "search-cache.sqlite", settings.cache_hours * 3600)
