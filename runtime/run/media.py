"""Pictures, sounds and videos in messages: as parts of content, fetched, and made by tools.

An engine gets media as data URLs. So nothing but `MediaFetcher` fetches what a request names,
within limits on size and time, and from public addresses only.
"""

import asyncio
import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from caesura.runtime.errors import UsageError
from caesura.scheduler.messages import (
    MEDIA_KINDS,
    MediaRules,
    Message,
    Part,
    has_media,
    media_in,
    parts_of,
)
from caesura.tools.artifacts import Artifact

if TYPE_CHECKING:
    from caesura.tools.net import HttpClient

TEXTS = ("text", "refusal")
"""Parts that are text; a refusal is an assistant's text, as OpenAI's models say."""
MEDIA_ROLES = ("user", "tool")
"""The roles whose messages may hold media."""
MAX_MEDIA = 64
"""The most pictures, sounds and videos of one conversation."""
MAX_MEDIA_BYTES = 32 * 2**20
"""The most bytes of one of them."""
MAX_FETCHED_BYTES = 64 * 2**20
"""The most bytes that are fetched for one conversation."""
FETCH_SECONDS = 20.0
SEEN_TYPES = frozenset({"image/png", "image/jpeg", "image/webp"})
"""The types of pictures that processors of models read; SVG is text."""
MAX_SHOWN_BYTES = 16 * 2**20
"""A larger picture is not shown."""
_ADDRESSES = frozenset({"url", "image_url", "audio_url", "video_url"})
"""The fields of parts and blocks that hold an address or a data URL."""
_MEDIA_TYPES = ("image", "audio", "video")
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
    """Return a part of one of the types in `MEDIA_KINDS`. Raises `ValueError` for a wrong value."""
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
    if kind in MEDIA_KINDS:
        return media_part(kind, part.get(kind), f"part {number}")
    if kind == "file":
        given = part.get("file")
        sent = given if isinstance(given, Mapping) else {}
        if sent.get("file_id") is not None:
            raise ValueError(f"part {number}: files are not kept here: send its file_data")
        text = file_text(sent.get("file_data"))
        return {"type": "text", "text": titled(sent.get("filename"), text)}
    if kind not in TEXTS:
        known = ", ".join(("text", *MEDIA_KINDS))
        raise ValueError(f"part {number} is of type {kind[:64]!r}; only {known} are supported")
    if not isinstance(part.get(kind), str):
        raise ValueError(f"part {number} must have a {kind} that is a string")
    return {"type": "text", "text": part[kind]}


def file_text(data: object, media_type: str = "") -> str:
    """Return the text of a file that is sent as base64, or as a data URL.

    Raises `ValueError` for a file that is no text in UTF-8.
    """
    if not isinstance(data, str):
        raise ValueError("a file must have its content as a text in base64")
    if data.startswith("data:"):
        head, _, data = data.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0]
    try:
        text = base64.b64decode(data, validate=True).decode()
    except ValueError:
        text = "\0"
    if "\0" in text or text.startswith("%PDF"):
        what = f" of type {media_type[:64]}" if media_type else ""
        raise ValueError(f"only documents of text are read here, in UTF-8: send this one{what} so")
    return text


def titled(title: object, text: str) -> str:
    """Return the text of a document behind its title, if it has one."""
    return f"{title}:\n{text}" if isinstance(title, str) and title else text


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
        self._allow_private = allow_private
        self._client: HttpClient | None = None

    async def inlined(self, messages: Sequence[Message], rules: MediaRules) -> Sequence[Message]:
        """Return the messages with every medium as a data URL.

        Media in tools' results that the model does not take become a sentence, see `with_words`.
        Raises `MediaRefused` for other media that `rules` exclude, for more than the limits, and
        for addresses from which nothing can be fetched.
        """
        if not has_media(messages):
            return messages
        messages = with_words(messages, rules)
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
        if self._client is not None:
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
            of = MEDIA_KINDS.get(key, kind)
            if key not in _ADDRESSES or not isinstance(each, str):
                made[key] = await self._without_addresses(each, place, rules, budget, of)
            elif not each.lstrip()[:5].lower().startswith("data:"):
                made[key] = await self._fetched(each, path, rules, budget, of)
        return made

    async def _fetched(
        self, url: str, path: str, rules: MediaRules, budget: "_Budget", kind: str
    ) -> str:
        """Return what is at an address, as a data URL."""
        from caesura.tools.net import HttpClient, HttpError, Outgoing  # few messages need HTTP

        _check_address(url, path, rules)
        if self._client is None:
            self._client = HttpClient(
                allow_private=self._allow_private,
                timeout_seconds=FETCH_SECONDS,
                max_bytes=MAX_MEDIA_BYTES,
            )
        accept = tuple(f"{each}/*" for each in _MEDIA_TYPES if kind in ("*", each))
        try:
            reply = await self._client.file(Outgoing(url, accept=accept))
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


_WORDS = {"image": "A picture", "audio": "A sound", "video": "A video"}


def with_words(messages: Sequence[Any], rules: MediaRules) -> list[Any]:
    """Return messages in which a sentence stands for media of results that the model cannot take.

    A result stays in the history, so that a refusal would end the client's session. Of more media
    than the model takes at once, the oldest of results are left out, a quarter of the limit at a
    time: so the prompt's begin changes seldom. Messages may be any JSON.
    """
    left_out: dict[tuple[int, int], str] = {}
    for kind in _WORDS:
        most = min(rules.limits.get(kind, 0), MAX_MEDIA)
        found = [place for place in _places(messages) if place.kind == kind]
        results = [(place.message, place.part) for place in found if place.in_result]
        excess, step = len(found) - most, max(1, most // 4)
        count = len(results) if most == 0 else max(0, -(-excess // step)) * step
        why = (
            f"Only the last {_plural(kind)} are shown."
            if most
            else (f"This model takes no {_plural(kind)}.")
        )
        left_out |= dict.fromkeys(results[:count], f"[{_WORDS[kind]} was here. {why}]")
    if not left_out:
        return list(messages)
    made = []
    for number, message in enumerate(messages):
        if any(of == number for of, _ in left_out):
            parts = [
                {"type": "text", "text": words}
                if (words := left_out.get((number, place)))
                else part
                for place, part in enumerate(message["content"])
            ]
            texts = all(set(part) == {"type", "text"} for part in parts)
            message = {**message, "content": joined(parts) if texts else parts}
        made.append(message)
    return made


class _Place(NamedTuple):
    """Where a medium stands in messages."""

    message: int
    part: int
    kind: str
    in_result: bool


def _places(messages: Sequence[Any]) -> Iterator[_Place]:
    for number, message in enumerate(messages):
        content = message.get("content") if isinstance(message, Mapping) else None
        for place, part in enumerate(content if isinstance(content, list) else ()):
            kind = MEDIA_KINDS.get(str(part.get("type"))) if isinstance(part, Mapping) else None
            if kind is not None:
                yield _Place(number, place, kind, message.get("role") == "tool")


def _plural(kind: str) -> str:
    return "audio" if kind == "audio" else f"{kind}s"


def _check(messages: Sequence[Message], rules: MediaRules) -> None:
    """Raise `MediaRefused` for kinds that the model does not take, or takes fewer of."""
    found: Counter[str] = Counter()
    for number, message in enumerate(messages):
        for place, part in enumerate(parts_of(message.get("content"))):
            kind = MEDIA_KINDS.get(part["type"])
            if kind is None:
                continue
            found[kind] += 1
            path = f"messages[{number}].content[{place}]"
            most = min(rules.limits.get(kind, 0), MAX_MEDIA)
            if most == 0:
                words = f"this model takes no {_plural(kind)}; leave the part out"
                raise MediaRefused(words, path)
            if found[kind] > most:
                raise MediaRefused(
                    f"the conversation holds more than {most} parts of kind {kind}; leave some out"
                    " (--limit-mm-per-prompt sets a model's limit)",
                    path,
                )


def _check_address(url: str, path: str, rules: MediaRules) -> None:
    """Raise `MediaRefused` unless a URL is of the web and of an allowed domain."""
    from yarl import URL

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
    return sum(MEDIA_KINDS[part["type"]] == "image" for part in media_in(messages))


def _is_seen(file: Artifact) -> bool:
    return file.media_type in SEEN_TYPES and file.size_bytes <= MAX_SHOWN_BYTES


def _data_url(file: Artifact) -> str:
    """Return a file as a data URL; empty if it cannot be read."""
    try:
        data = file.path.read_bytes()
    except OSError:
        return ""
    return f"data:{file.media_type};base64,{base64.b64encode(data).decode()}"
