"""What a request tells of its session: its name, what it continues, and how its prompt begins.

Nothing is needed from the client. A chat request holds its whole history, so the prompt up to the
first answer names the session, and every router finds the same name in every later request.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.datastructures import Headers

from caesura.runtime.server.http.lineage import named_by, named_in, session_in
from caesura.runtime.server.http.returning import SERVER
from caesura.scheduler.policy.routing import Asked

BLOCK_CHARACTERS = 1024
MAX_BLOCKS = 64
"""The most blocks of a prompt that are compared: 64 Ki characters."""
MODEL_ROLES = ("assistant", "model")
MODEL_ITEMS = ("function_call", "reasoning", "mcp_call", "custom_tool_call", "compaction")
"""Types of Responses items that the model wrote."""
STORED = ("responses", "conversations", "sessions")
"""Parts of a path behind which an id stands, as in `/v1/responses/ID`."""


def headers_of(message: Mapping[str, Any]) -> Headers:
    """Return the headers of a request's scope, or of the message with which an answer starts."""
    pairs = message.get("headers", ())
    return Headers(raw=[(bytes(name).lower(), bytes(text)) for name, text in pairs])


def asked_in(scope: Mapping[str, Any], body: bytes) -> Asked:
    """Return what an HTTP request tells."""
    headers = headers_of(scope)
    behind = session_in(scope["path"])
    named, path = behind or (named_by(headers).session, scope["path"])
    told = asked_of(path, body, named)
    continues = told.continues if behind is None else named
    return replace(told, continues=continues, server=headers.get(SERVER, ""))


def asked_of(path: str, body: bytes, named: str = "") -> Asked:
    """Return what a request tells, of the session that it may have `named` beside its body.

    A body that is no JSON object tells nothing.
    """
    data = _object(body)
    continues = _id_in(path) or _text_of(data, "previous_response_id") or _conversation(data)
    first, follows = _first_prompt(data)
    return Asked(
        session=named or _client_session(data) or ("" if continues else _digest(first)),
        turn=int(follows),
        prefixes=tuple(_blocks("".join(first))),
        continues=continues,
    )


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        data = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _text_of(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _conversation(data: Mapping[str, Any]) -> str:
    """Return the id of a Responses request's conversation, which is a text or an object."""
    value = data.get("conversation")
    return _text_of(value, "id") if isinstance(value, dict) else _text_of(data, "conversation")


def _client_session(data: Mapping[str, Any]) -> str:
    """Return the session's name, or OpenAI's `prompt_cache_key`, which asks for the same place."""
    return named_in(data).session or _text_of(data, "prompt_cache_key")


def _id_in(path: str) -> str:
    """Return the id in `/v1/responses/ID` and `/v1/conversations/ID`, or an empty text."""
    parts = path.strip("/").split("/")
    return parts[2] if len(parts) > 2 and parts[1] in STORED and "_" in parts[2] else ""


def _first_prompt(data: Mapping[str, Any]) -> tuple[Sequence[str], bool]:
    """Return the texts of a prompt up to the first answer, and whether there is an answer."""
    texts = [_plain(data[name]) for name in ("instructions", "system") if data.get(name)]
    given = data.get("messages", data.get("input", data.get("prompt")))
    if not isinstance(given, list):
        return ([*texts, _plain(given)] if given else texts), False
    for item in given:
        if isinstance(item, dict) and (
            item.get("role") in MODEL_ROLES or item.get("type") in MODEL_ITEMS
        ):
            return texts, True
        texts.append(_plain(item))
    return texts, False


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _digest(texts: Sequence[str]) -> str:
    if not texts:
        return ""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _blocks(text: str) -> Iterator[tuple[str, int]]:
    """Yield for each full block of a text's beginning a digest up to its end, and that place."""
    chain = hashlib.sha256()
    for start in range(0, min(len(text), MAX_BLOCKS * BLOCK_CHARACTERS), BLOCK_CHARACTERS):
        block = text[start : start + BLOCK_CHARACTERS]
        if len(block) < BLOCK_CHARACTERS:
            return
        chain.update(block.encode("utf-8", "surrogatepass"))
        yield chain.hexdigest()[:32], start + BLOCK_CHARACTERS
