"""Any search service that answers with JSON, described by a request and paths in the answer."""

import asyncio
import json
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from caesura.tools.net import HttpClient, HttpRefused, Outgoing, checked_url
from caesura.tools.search.cache import Cache
from caesura.tools.search.results import MAX_TEXT_CHARACTERS, Hit, clean
from caesura.tools.search.settings import HttpSettings
from caesura.tools.services import with_variables

_BLANK = re.compile(r"\{(query|limit)\}")


class Service:
    """Searches through a configured service.

    Raises ValueError for an invalid URL, for a request without the query, and for headers that
    name an unset environment variable.
    """

    def __init__(
        self,
        settings: HttpSettings,
        client: HttpClient,
        cache: Cache,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        if "{query}" not in settings.url + json.dumps(settings.body):
            raise ValueError("http: write {query} in url or body, where the query belongs")
        self._host = checked_url(_text_filled_in(settings.url, "x", 1, quoted=True)).host
        self._settings = settings
        self._headers = {
            name: _expanded(value, environment) for name, value in settings.headers.items()
        }
        self._client = client
        self._cache = cache

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Return the service's results; raises HttpRefused and HttpUnavailable."""
        asked = clean(query)
        if not asked:
            return []
        url = _text_filled_in(self._settings.url, asked, limit, quoted=True)
        body = _filled_in(self._settings.body, asked, limit)
        key = json.dumps([url, body, limit])
        hits = await self._cache.get(key)
        if hits is None:
            hits = self._read(await self._ask(url, body), limit)
            await self._cache.put(key, hits)
        return hits

    async def aclose(self) -> None:
        """Close the connections and the cache."""
        await asyncio.gather(self._client.aclose(), self._cache.aclose())

    async def _ask(self, url: str, body: Any) -> Any:
        return await self._client.json(Outgoing(url, headers=self._headers, body=body))

    def _read(self, answer: Any, limit: int) -> list[Hit]:
        fields = self._settings
        results = at(answer, fields.results)
        if results is None:
            return []
        if not isinstance(results, list):
            raise HttpRefused(f"{self._host} answered without a list at {fields.results!r}")
        hits = (
            Hit(
                _text(at(each, fields.title)),
                _text(at(each, fields.source)) or f"{self._host}",
                _text(at(each, fields.text)),
            )
            for each in results
        )
        return [hit for hit in hits if hit.text or hit.title][:limit]


def at(value: Any, path: str) -> Any:
    """Return the value at a dotted path of a JSON value, `hits.0.title`; None if missing."""
    for part in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 10:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def _text(value: Any) -> str:
    """Return a field as text: numbers as written, lists of texts joined, others empty."""
    if isinstance(value, list):
        value = " ".join(each for each in value if isinstance(each, str))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    return value[:MAX_TEXT_CHARACTERS] if isinstance(value, str) else ""


def _text_filled_in(template: str, query: str, limit: int, *, quoted: bool) -> str:
    values = {"query": quote(query, safe="") if quoted else query, "limit": str(limit)}
    return _BLANK.sub(lambda match: values[match.group(1)], template)


def _filled_in(template: Any, query: str, limit: int) -> Any:
    """Return a body with its blanks filled in; a text that is only `{limit}` becomes a number."""
    if isinstance(template, dict):
        return {name: _filled_in(each, query, limit) for name, each in template.items()}
    if isinstance(template, list):
        return [_filled_in(each, query, limit) for each in template]
    if template == "{limit}":
        return limit
    return (
        _text_filled_in(template, query, limit, quoted=False)
        if isinstance(template, str)
        else template
    )


def _expanded(value: str, environment: Mapping[str, str]) -> str:
    try:
        expanded = with_variables(value, environment)
    except ValueError as error:
        raise ValueError(f"http: {error}") from None
    if not expanded.isprintable():
        raise ValueError("http: a header contains a line break or another control character")
    return expanded
