"""A configured service with an OpenAI-compatible API: its address, its key and its requests."""

import os
from typing import Any

from caesura.tools.net import HttpClient, Outgoing, Reply, checked_url, is_public
from caesura.tools.services import Services, SetupError

MAX_BYTES = 96 * 2**20
"""Limit for an answer: a file of the artifact store's largest size, in base64."""


class Endpoint:
    """Sends requests to one service; reads its key from the environment once.

    url: such as `https://api.example.com/v1`. api_key_env: the variable that holds the key, or
    None for a service without one. Raises SetupError.
    """

    def __init__(
        self,
        tool: str,
        url: str | None,
        api_key_env: str | None,
        services: Services,
        *,
        timeout_seconds: float,
    ) -> None:
        self._url = service_url(tool, url, allow_private=services.allow_private).rstrip("/")
        self._headers = key_headers(tool, api_key_env)
        self._client = HttpClient(
            allow_private=services.allow_private,
            timeout_seconds=timeout_seconds,
            max_bytes=MAX_BYTES,
        )
        services.at_end(self._client.aclose)

    async def json(self, path: str, body: Any) -> Any:
        """Return the JSON answer to a JSON body. Raises HttpError."""
        return await self._client.json(self._post(path, body))

    async def file(self, path: str, body: Any) -> Reply:
        """Return the file that answers a JSON body. Raises HttpError."""
        return await self._client.file(self._post(path, body))

    async def file_at(self, url: str) -> Reply:
        """Return the file at a URL from an answer; the key is not sent. Raises HttpError."""
        return await self._client.file(Outgoing(url))

    def _post(self, path: str, body: Any) -> Outgoing:
        return Outgoing(self._url + path, headers=self._headers, body=body)


def service_url(tool: str, url: str | None, *, allow_private: bool) -> str:
    """Return a service's configured address; raises SetupError if it is missing or refused."""
    if url is None:
        raise SetupError(
            f"the tool {tool!r} has no url: set the address of the service, up to /v1, "
            f"in [tools.{tool}]"
        )
    try:
        host = checked_url(url).host or ""
    except ValueError as error:
        raise SetupError(f"[tools.{tool}] url: {error}") from None
    literal = host.replace(".", "").isdigit() or ":" in host or host == "localhost"
    if literal and not allow_private and not is_public(host):
        raise SetupError(
            f"[tools.{tool}] url: {host} is not a public address; "
            "set allow_private = true to reach it"
        )
    return url


def key_headers(tool: str, api_key_env: str | None) -> dict[str, str]:
    """Return the header with the key in a variable; raises SetupError if that is not set."""
    if api_key_env is None:
        return {}
    key = os.environ.get(api_key_env, "").strip()
    if not key:
        raise SetupError(f"[tools.{tool}] api_key_env: the variable {api_key_env} is not set")
    return {"Authorization": f"Bearer {key}"}
