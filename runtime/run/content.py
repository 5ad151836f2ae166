"""The content of messages: a text, or parts among which are pictures and sounds."""

from collections.abc import Mapping, Sequence
from typing import Any

from caesura.scheduler.media import KINDS

TEXTS = ("text", "refusal")
"""Parts that are text; a refusal is an assistant's text, as OpenAI's models say."""
MEDIA_ROLES = ("user", "tool")
"""The roles whose messages may hold media."""

Content = str | list[dict[str, Any]]


def content_of(content: object) -> Content:
    """Return the content of a chat message: one text, or a list of parts if it holds media.

    Null becomes empty, and line breaks join text parts. Raises `ValueError` for a wrong part.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError("input should be a valid string or a list of parts")
    return joined([_part(number, part) for number, part in enumerate(content)])


def joined(parts: Sequence[Mapping[str, Any]]) -> Content:
    """Return parts of text as one text, and parts with media as they are."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return [dict(part) for part in parts]


def media_part(kind: str, value: object, path: str) -> dict[str, Any]:
    """Return a part of one of the types in `KINDS`. Raises `ValueError` for a wrong value."""
    if kind == "input_audio":
        names = ("data", "format")
        sound = value if isinstance(value, Mapping) else {}
        if not all(isinstance(sound.get(name), str) for name in names):
            raise ValueError(f"{path} must have input_audio with the texts data and format")
        return {"type": kind, kind: {name: sound[name] for name in names}}
    url = value.get("url") if isinstance(value, Mapping) else value
    if not isinstance(url, str) or not url:
        raise ValueError(f"{path} must have {kind} with a url that is a string")
    return {"type": kind, kind: {"url": url}}


def _part(number: int, part: object) -> dict[str, Any]:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise ValueError(f"part {number} must be an object whose type is a string")
    kind = part["type"]
    if kind in KINDS:
        return media_part(kind, part.get(kind), f"part {number}")
    if kind not in TEXTS:
        known = ", ".join(("text", *KINDS))
        raise ValueError(f"part {number} is of type {kind[:64]!r}; only {known} are supported")
    if not isinstance(part.get(kind), str):
        raise ValueError(f"part {number} must have a {kind} that is a string")
    return {"type": "text", "text": part[kind]}
