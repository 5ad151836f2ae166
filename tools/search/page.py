"""The tool `web_fetch`: reads a page of the web as text."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from caesura.tools.net import HttpClient, HttpRefused, Outgoing, Reply, load_json
from caesura.tools.search.reading import Block, Heading, ReadError, read_page
from caesura.tools.search.results import CHARACTERS_PER_TOKEN, short
from caesura.tools.search.web import Domains
from caesura.tools.services import Services, ToolSettings
from caesura.tools.tool import Tool

__all__ = ["Settings", "make"]

NOT_ALLOWED = "pages of this domain are not allowed"
_PAGES = ("text/html", "application/xhtml+xml")
_TEXTS = (*_PAGES, "text/*", "application/json", "+json", "application/xml", "+xml")


class Settings(ToolSettings):
    """Settings of `[tools.web_fetch]`."""

    max_bytes: int = Field(2 * 2**20, ge=1_024, le=32 * 2**20, description="of a page")
    max_characters: int = Field(100_000, ge=100, description="a longer text is cut")
    allow_private: bool = Field(False, description="allow addresses that are not public")


class WebFetch:
    """Fetches pages, and writes their text for the model."""

    def __init__(self, client: HttpClient, settings: Settings) -> None:
        self._client = client
        self._settings = settings

    async def __call__(
        self,
        url: str,
        allowed_domains: Sequence[str] = (),
        blocked_domains: Sequence[str] = (),
        max_tokens: int | None = None,
    ) -> str:
        """Return the title, the address and the text; raises HttpRefused and HttpUnavailable."""
        domains = Domains(allowed_domains, blocked_domains)
        if not domains.hold(url):
            raise HttpRefused(NOT_ALLOWED)
        reply = await self._client.file(Outgoing(url, accept=_TEXTS, allows=domains.hold))
        try:
            title, text = await asyncio.to_thread(_read, reply)
        except ReadError as error:
            raise HttpRefused(f"the page cannot be read: {error}") from None
        most = self._settings.max_characters
        if max_tokens is not None:
            most = min(most, max_tokens * CHARACTERS_PER_TOKEN)
        if len(text) > most:
            text = f"{text[:most]} [cut: {len(text)} characters in all]"
        return f"{short(title) or 'Untitled'}\n{url}\n\n{text}"


def _read(reply: Reply) -> tuple[str, str]:
    """Return the title and the text of a page; raise ReadError if it is none."""
    if reply.media_type in _PAGES:
        title, blocks = read_page(reply.data, is_xml=reply.media_type == _PAGES[1])
        return title, "\n\n".join(map(_line, blocks))
    text = reply.data.decode("utf-8", "replace")
    if reply.media_type.endswith("json"):
        try:
            load_json(text)
        except ValueError as error:
            raise ReadError(f"it is not valid JSON: {error}") from None
    return "", text


def _line(block: Block) -> str:
    text = " ".join(block.text.split())
    return f"{'#' * min(block.level, 6)} {text}" if isinstance(block, Heading) else text


def page_in(text: str) -> tuple[str, str, str] | None:
    """Return the title, the address and the text in a result, or None if it holds no page."""
    head, _, body = text.partition("\n\n")
    title, _, address = head.partition("\n")
    return (title, address, body) if address.startswith(("http://", "https://")) else None


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool, for `Toolset`."""
    client = HttpClient(
        allow_private=services.allow_private or settings.allow_private,
        max_bytes=settings.max_bytes,
    )
    services.at_end(client.aclose)
    fetch = WebFetch(client, settings)
    url: dict[str, Any] = {"type": "string", "description": "http:// or https://"}
    return Tool(
        name="web_fetch",
        description="Read a page of the web, by its address, as text.",
        parameters={
            "type": "object",
            "properties": {"url": url},
            "required": ["url"],
            "additionalProperties": False,
        },
        call=fetch.__call__,
        function=fetch,
        retries=1,
        safe_to_repeat=True,
        concurrency=8,
        expected_seconds=1.0,
    )
