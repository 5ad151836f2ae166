"""Trajectories that a server keeps: `fetch` reads those of a session, `complete` ends it."""

import json
from typing import Any
from urllib.parse import quote

from caesura.runtime.errors import UsageError
from caesura.runtime.trajectories.files import from_json
from caesura.runtime.trajectories.trajectory import Trajectory


async def fetch(base_url: str, session: str, *, api_key: str | None = None) -> list[Trajectory]:
    """Return the trajectory of a server's session, then those of the sessions below it.

    `base_url` is the API's, such as "http://127.0.0.1:8000/v1", and `session` the session's name,
    or the id of one of its answers. Raises `UsageError` for what the server refuses, and if it
    cannot be reached.
    """
    told = await _asked("GET", base_url, session, "trajectories?format=jsonl", api_key)
    return [from_json(line) for line in told.splitlines()]


async def complete(
    base_url: str, session: str, reward: float | None = None, *, api_key: str | None = None
) -> None:
    """End a server's session, with a reward if one is given.

    Raises `UsageError` as `fetch` does.
    """
    body = {} if reward is None else {"reward": float(reward)}
    await _asked("POST", base_url, session, "complete", api_key, body)


async def _asked(
    method: str, base_url: str, session: str, what: str, api_key: str | None, body: Any = None
) -> str:
    import aiohttp  # a late import: it takes long
    from yarl import URL

    path = f"{base_url.rstrip('/')}/sessions/{quote(session, safe='')}/{what}"
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        async with (
            aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout()) as client,
            client.request(method, URL(path, encoded=True), json=body) as answer,
        ):
            text = await answer.text()
    except (aiohttp.ClientError, ValueError) as error:
        raise UsageError(
            f"the server at {base_url!r} cannot be asked for the session {session!r}: {error}"
        ) from None
    if answer.status >= 400:
        raise UsageError(
            f"the server at {base_url!r} refused {method} for the session {session!r}:"
            f" {answer.status} {_why(text)}"
        )
    return text


def _why(text: str) -> str:
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
