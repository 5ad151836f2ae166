"""The implementation of `caesura people`: a client of a running server."""

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Self

import aiohttp
from rich.console import Console

from caesura.runtime.cli.terminal import Terminal, shorten
from caesura.runtime.errors import UsageError
from caesura.tools.people import Pending

TIMEOUT_SECONDS = 30.0
WIDTH = 100

console = Console()


class Office:
    """A client of `/v1/pending`. Its methods raise `UsageError` on every failure."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}

    async def __aenter__(self) -> Self:
        """Return the client."""
        self._http = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the connections."""
        await self._http.close()

    async def listed(self, everything: bool) -> dict[str, Any]:
        """Return the server's list of items, with its warning if there is one."""
        return await self._json("GET", "?state=all" if everything else "")

    async def get(self, item_id: str) -> dict[str, Any]:
        """Return one item as the server tells it, with the name of the key that asks."""
        return await self._json("GET", f"/{item_id}")

    async def say(self, item_id: str, **body: Any) -> Pending:
        """Answer, approve or deny an item; return its new state."""
        return Pending.from_public(await self._json("POST", f"/{item_id}", body))

    async def events(self) -> AsyncIterator[Pending]:
        """Yield items as they open and change, until the server ends."""
        async with self._request("GET", "/events", None, None) as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    yield Pending.from_public(json.loads(line.removeprefix(b"data: ")))

    async def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        async with self._request(method, path, body, TIMEOUT_SECONDS) as response:
            data: dict[str, Any] = await response.json()
            return data

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: Any, seconds: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        timeout = aiohttp.ClientTimeout(seconds)
        url = f"{self._url}/v1/pending{path}"
        try:
            async with self._http.request(method, url, json=body, timeout=timeout) as response:
                if response.status != 200:
                    raise UsageError(await _refusal(response))
                yield response
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise UsageError(
                f"no server answers at {self._url} ({_reason(error)}): start one with"
                " `caesura serve`, or give its address with --url"
            ) from error


async def list_items(url: str, api_key: str | None, everything: bool, as_json: bool) -> None:
    """Print a line per item."""
    async with Office(url, api_key) as office:
        found = await office.listed(everything)
    if as_json:
        print(json.dumps(found["data"], indent=2))
        return
    for data in found["data"]:
        _print(line_of(Pending.from_public(data), time.time()))
    if not found["data"]:
        _print("nothing waits for a person")
    if "warning" in found:
        _print(found["warning"])


async def show_item(url: str, api_key: str | None, item_id: str) -> None:
    """Print all of an item."""
    async with Office(url, api_key) as office:
        told = await office.get(item_id)
    shown = Pending.from_public(told).public() | {"key": told.get("key")}
    for name, value in shown.items():
        if value in (None, "", []) or name == "conversation":  # a digest, which says nothing here
            continue
        if name in ("created", "deadline"):
            value = datetime.fromtimestamp(value).astimezone().isoformat(" ", "seconds")
        elif name == "options":
            value = " | ".join(value)
        _print(f"{name}: {_plain(str(value))}")


async def say(url: str, api_key: str | None, item_id: str, **body: Any) -> None:
    """Answer, approve or deny an item, and print its new state."""
    async with Office(url, api_key) as office:
        _print(line_of(await office.say(item_id, **body), time.time()))


async def watch(url: str, api_key: str | None, asking: bool) -> None:
    """Print items as they open and change, until the server ends.

    With `asking`, also ask for the answers in this terminal.
    """
    terminal = Terminal(console)
    async with Office(url, api_key) as office:
        async for item in office.events():
            _print(line_of(item, time.time()))
            if asking and item.state in ("open", "orphaned"):
                await _ask(office, terminal, item)


async def _ask(office: Office, terminal: Terminal, item: Pending) -> None:
    body: dict[str, Any]
    try:
        if item.kind == "question":
            body = {"answer": await terminal.question(item)}
        else:
            said = await terminal.approval(item)
            body = {"approve": said is True, "reason": said if isinstance(said, str) else ""}
    except RuntimeError as error:
        raise UsageError(str(error)) from None
    try:
        await office.say(item.id, **body)
    except UsageError as error:  # another person answered first
        _print(str(error))


def line_of(item: Pending, now: float) -> str:
    """Return an item as one line; `now` is the Unix time in seconds."""
    about = item.question if item.kind == "question" else f"{item.tool} {item.arguments}"
    if item.options:
        about += f" ({' | '.join(item.options)})"
    if item.state in ("open", "orphaned"):
        state = f"{item.state}, {max(0.0, item.deadline - now):.0f} s left"
    elif item.approved is None:
        state = f"{item.state}: {item.answer}" if item.answer else item.state
    else:
        state = "approved" if item.approved else "denied"
        state += f": {item.answer}" if item.answer else ""
    return f"{item.id}  {_plain(shorten(about, WIDTH))}  [{_plain(shorten(state, WIDTH))}]"


def _reason(error: Exception) -> str:
    """Return a short reason for a failed request."""
    if isinstance(error, aiohttp.InvalidURL):
        return "it is not an address such as http://127.0.0.1:8000"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        return os.strerror(number) if number > 0 else str(error.os_error)
    return str(error) or type(error).__name__


async def _refusal(response: aiohttp.ClientResponse) -> str:
    try:
        return str((await response.json())["error"]["message"])
    except (ValueError, LookupError, TypeError, aiohttp.ClientError):
        return f"the server answers {response.status} {response.reason}"


def _plain(text: str) -> str:
    """Return a model's text without control characters."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _print(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
