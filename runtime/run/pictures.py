"""The pictures that tools make, shown to a model that sees."""

import asyncio
import base64
from collections.abc import Iterable, Sequence
from typing import Any

from caesura.scheduler.media import KINDS, MediaRules, Part, media_in
from caesura.scheduler.messages import Message
from caesura.tools.artifacts import Artifact

SEEN_TYPES = frozenset({"image/png", "image/jpeg", "image/webp"})
"""The types of pictures that processors of models read; SVG is text."""
MAX_SHOWN_BYTES = 16 * 2**20
"""A larger picture is not shown."""


class Pictures:
    """Adds pictures to tools' results, up to the number that the engine takes in a prompt."""

    def __init__(self, rules: MediaRules, given: int = 0) -> None:
        """Create it for a conversation that already holds `given` pictures."""
        self._left = rules.limits.get("image", 0) - given

    async def shown(self, text: str, files: Iterable[Artifact]) -> str | Sequence[Part]:
        """Return the content of a result with this text: with its pictures, if the model sees.

        A file that has been deleted meanwhile is left out.
        """
        found = [each for each in files if _is_seen(each)][: max(0, self._left)]
        urls = [url for each in found if (url := await asyncio.to_thread(_data_url, each))]
        if not urls:
            return text
        self._left -= len(urls)
        parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
        return [*parts, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]


NO_PICTURES = Pictures(MediaRules())


def count_pictures(messages: Iterable[Message]) -> int:
    """Return the number of pictures in messages."""
    return sum(KINDS[part["type"]] == "image" for part in media_in(messages))


def _is_seen(file: Artifact) -> bool:
    return file.media_type in SEEN_TYPES and file.size_bytes <= MAX_SHOWN_BYTES


def _data_url(file: Artifact) -> str:
    """Return a file as a data URL; empty if it cannot be read."""
    try:
        data = file.path.read_bytes()
    except OSError:
        return ""
    return f"data:{file.media_type};base64,{base64.b64encode(data).decode()}"
