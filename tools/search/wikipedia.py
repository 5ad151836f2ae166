"""Wikipedia, or another MediaWiki with search and extracts, through its live API."""

import asyncio
import html
import json
import re
from typing import Any

from caesura.tools.net import (
    USER_AGENT,
    HttpClient,
    HttpRefused,
    HttpUnavailable,
    Outgoing,
    checked_url,
)
from caesura.tools.search.cache import Cache
from caesura.tools.search.results import MAX_TEXT_CHARACTERS, Hit, plain
from caesura.tools.search.settings import WikipediaSettings

MAX_LAG_SECONDS = 5
"""A wiki whose replicas lag by more than this asks programs to wait."""
_LATER = {"maxlag", "ratelimited", "readonly", "cirrussearch-too-busy-error"}
_MAX_ASKED_CHARACTERS = 300
_TAG = re.compile(r"<[^<>]{0,200}>")


def user_agent(settings: WikipediaSettings) -> str:
    """Return the client's User-Agent, which includes the operator's contact."""
    return f"{USER_AGENT} ({settings.contact})"


class Wikipedia:
    """Searches articles, and returns each one's introduction and the matching place.

    Raises ValueError for an invalid `api_url`.
    """

    def __init__(self, settings: WikipediaSettings, client: HttpClient, cache: Cache) -> None:
        self._url = settings.api_url or f"https://{settings.language}.wikipedia.org/w/api.php"
        checked_url(self._url)
        self._client = client
        self._cache = cache

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Return the best articles; raises HttpRefused and HttpUnavailable."""
        asked = plain(query)[:_MAX_ASKED_CHARACTERS]
        if not asked:
            return []
        key = json.dumps([self._url, asked.casefold(), limit])
        hits = await self._cache.get(key)
        if hits is None:
            hits = await self._ask(asked, limit)
            await self._cache.put(key, hits)
        return hits

    async def aclose(self) -> None:
        """Close the connections and the cache."""
        await asyncio.gather(self._client.aclose(), self._cache.aclose())

    async def _ask(self, asked: str, limit: int) -> list[Hit]:
        found = await self._query(
            list="search", srsearch=asked, srlimit=str(limit), srprop="snippet"
        )
        places = {
            str(each["pageid"]): _without_tags(str(each.get("snippet", "")))
            for each in _listed(found, "search")
            if isinstance(each.get("pageid"), int)
        }
        if not places:
            return []
        pages = await self._query(
            prop="extracts|info",
            pageids="|".join(places),
            inprop="url",
            exintro="1",
            explaintext="1",
            exlimit="max",
        )
        by_id = {str(page.get("pageid")): page for page in _listed(pages, "pages")}
        return [_hit(by_id[each], place) for each, place in places.items() if each in by_id]

    async def _query(self, **parameters: str) -> dict[str, Any]:
        """Return the answer to `action=query`."""
        answer = await self._client.json(
            Outgoing(
                self._url,
                {
                    "action": "query",
                    "format": "json",
                    "formatversion": "2",
                    "maxlag": str(MAX_LAG_SECONDS),
                    **parameters,
                },
            )
        )
        host = checked_url(self._url).host
        if not isinstance(answer, dict):
            raise HttpRefused(f"{host} answered in an unknown form")
        error = answer.get("error")
        if isinstance(error, dict):
            if error.get("code") in _LATER:
                raise HttpUnavailable(f"{host} is busy", retry_after=float(MAX_LAG_SECONDS))
            raise HttpRefused(f"{host} answered: {str(error.get('info', 'an error'))[:200]}")
        query = answer.get("query", {})
        return query if isinstance(query, dict) else {}


def _listed(query: dict[str, Any], name: str) -> list[dict[str, Any]]:
    listed = query.get(name)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _hit(page: dict[str, Any], place: str) -> Hit:
    text = str(page.get("extract") or "")[:MAX_TEXT_CHARACTERS].strip()
    if place and place not in text:
        text = f"{text}\n{place}".strip()
    return Hit(str(page.get("title", "")), str(page.get("fullurl", "Wikipedia")), text)


def _without_tags(text: str) -> str:
    return html.unescape(_TAG.sub("", text)).strip()
