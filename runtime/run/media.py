"""The pictures, sounds and videos of messages: checked, and fetched from their addresses.

An engine gets media as data URLs. So nothing but this client fetches what a request names, within
limits on size and time, and from public addresses only.
"""

import asyncio
import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from yarl import URL

from caesura.runtime.errors import UsageError
from caesura.scheduler.media import KINDS, MediaRules, has_media, parts_of
from caesura.scheduler.messages import Message
from caesura.tools.net import HttpClient, HttpError

MAX_MEDIA = 64
"""The most pictures, sounds and videos of one conversation."""
MAX_MEDIA_BYTES = 32 * 2**20
"""The most bytes of one of them."""
MAX_FETCHED_BYTES = 64 * 2**20
"""The most bytes that are fetched for one conversation."""
FETCH_SECONDS = 20.0
_ADDRESSES = frozenset({"url", "image_url", "audio_url", "video_url"})
"""The fields of parts and blocks that hold an address or a data URL."""
_MEDIA_TYPES = ("image", "audio", "video")


class MediaRefused(UsageError):
    """A message holds what the model does not take, or what cannot be fetched."""

    def __init__(self, message: str, param: str) -> None:
        """Create it; `param` is the path of the part, such as `messages[0].content[1]`."""
        super().__init__(f"{param}: {message}")
        self.param = param


class MediaFetcher:
    """Fetches the media of messages. It may be used without any end, and closed at any time."""

    def __init__(self, *, allow_private: bool = False) -> None:
        """Create it; `allow_private` permits addresses that are not public."""
        self._client = HttpClient(
            allow_private=allow_private,
            timeout_seconds=FETCH_SECONDS,
            max_bytes=MAX_MEDIA_BYTES,
        )

    async def inlined(self, messages: Sequence[Message], rules: MediaRules) -> Sequence[Message]:
        """Return the messages with every medium as a data URL.

        Raises `MediaRefused` for media that `rules` exclude, for more than the limits, and for
        addresses from which nothing can be fetched.
        """
        if not has_media(messages):
            return messages
        _check(messages, rules)
        budget = _Budget()
        made: list[Message] = []
        for number, message in enumerate(messages):
            path = f"messages[{number}].content"
            if parts := parts_of(message.get("content")):
                content = await self._without_addresses(parts, path, rules, budget)
                message = {**message, "content": content}
            made.append(message)
        return made

    async def inlined_json(self, body: Any, rules: MediaRules) -> Any:
        """Return a request's body, of any API and form, with data URLs instead of addresses.

        Raises `MediaRefused` as `inlined` does.
        """
        return await self._without_addresses(body, "", rules, _Budget())

    async def aclose(self) -> None:
        """Close the connections. May be called twice."""
        await self._client.aclose()

    async def _without_addresses(
        self, value: Any, path: str, rules: MediaRules, budget: "_Budget", kind: str = "*"
    ) -> Any:
        """Return JSON with the media at its addresses; `kind` is the media type's first half."""
        if isinstance(value, list):
            return [
                await self._without_addresses(each, f"{path}[{number}]", rules, budget)
                for number, each in enumerate(value)
            ]
        if not isinstance(value, Mapping):
            return value
        made = dict(value)
        for key, each in value.items():
            # The part is named, and not the field in it.
            place = path if key in _ADDRESSES else f"{path}.{key}".lstrip(".")
            of = KINDS.get(key, kind)
            if key not in _ADDRESSES or not isinstance(each, str):
                made[key] = await self._without_addresses(each, place, rules, budget, of)
            elif not each.lstrip()[:5].lower().startswith("data:"):
                made[key] = await self._fetched(each, path, rules, budget, of)
        return made

    async def _fetched(
        self, url: str, path: str, rules: MediaRules, budget: "_Budget", kind: str
    ) -> str:
        """Return what is at an address, as a data URL."""
        _check_address(url, path, rules)
        accept = tuple(f"{each}/*" for each in _MEDIA_TYPES if kind in ("*", each))
        try:
            reply = await self._client.get_bytes(url, accept=accept)
        except HttpError as error:
            raise MediaRefused(str(error), path) from None
        budget.spend(len(reply.data), path)
        text = await asyncio.to_thread(base64.b64encode, reply.data)
        return f"data:{reply.media_type};base64,{text.decode()}"


class _Budget:
    """The bytes that may still be fetched for one conversation."""

    def __init__(self) -> None:
        self._left = MAX_FETCHED_BYTES

    def spend(self, count: int, path: str) -> None:
        self._left -= count
        if self._left < 0:
            raise MediaRefused(
                f"the media of the conversation have more than {MAX_FETCHED_BYTES} bytes;"
                " send fewer or smaller ones",
                path,
            )


def _check(messages: Sequence[Message], rules: MediaRules) -> None:
    """Raise `MediaRefused` for kinds that the model does not take, or takes fewer of."""
    found: Counter[str] = Counter()
    for number, message in enumerate(messages):
        for place, part in enumerate(parts_of(message.get("content"))):
            kind = KINDS.get(part["type"])
            if kind is None:
                continue
            found[kind] += 1
            path = f"messages[{number}].content[{place}]"
            most = min(rules.limits.get(kind, 0), MAX_MEDIA)
            if most == 0:
                plural = "audio" if kind == "audio" else f"{kind}s"
                raise MediaRefused(f"this model takes no {plural}; leave the part out", path)
            if found[kind] > most:
                raise MediaRefused(
                    f"the conversation holds more than {most} parts of kind {kind}; leave some out"
                    " (--limit-mm-per-prompt sets a model's limit)",
                    path,
                )


def _check_address(url: str, path: str, rules: MediaRules) -> None:
    """Raise `MediaRefused` unless a URL is of the web and of an allowed domain."""
    try:
        address = URL(url)
    except ValueError:
        raise MediaRefused("the URL is not valid; send http, https or data", path) from None
    if address.scheme not in ("http", "https"):
        shown = address.scheme[:16] or "no scheme"
        raise MediaRefused(f"the URL must be of http, https or data, got {shown}", path)
    if rules.domains and address.host not in rules.domains:
        raise MediaRefused(
            f"the domain {str(address.host)[:80]} is not among those of --allowed-media-domains",
            path,
        )
