"""What messages hold besides text: pictures, sounds and videos, as parts of their content."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from caesura.scheduler.messages import Message

KINDS: Mapping[str, str] = {
    "image_url": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "video_url": "video",
}
"""vLLM's name of the kind of media, by the type of a content part."""

Part = Mapping[str, Any]
"""A part of a message's content: {"type": "text", "text": ...}, or one of the types of `KINDS`."""


@dataclass(frozen=True, slots=True)
class MediaRules:
    """What media an engine takes: the most of each kind in a prompt, and the domains they are from.

    A kind that `limits` lacks is not taken. Without `domains`, every domain is allowed.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    domains: tuple[str, ...] = ()


def parts_of(content: object) -> Sequence[Part]:
    """Return the parts of a content that is a list; a text has none."""
    if not isinstance(content, Sequence) or isinstance(content, str):
        return ()
    return [part for part in content if isinstance(part, Mapping)]


def media_in(messages: Iterable[Message]) -> Iterator[Part]:
    """Yield the parts of messages that are no text, in order."""
    for message in messages:
        yield from (part for part in parts_of(message.get("content")) if part["type"] in KINDS)


def has_media(messages: Iterable[Message]) -> bool:
    """Return whether a message holds anything but text."""
    return any(True for _ in media_in(messages))


def behind_results(messages: Iterable[Message]) -> list[Message]:
    """Return messages whose tools' results are text: a message of the user shows their media.

    Some chat templates write no picture in a result.
    """
    made: list[Message] = []
    shown: list[Part] = []
    for message in [*messages, {"role": ""}]:
        if message.get("role") != "tool" and shown:
            made.append({"role": "user", "content": shown})
            shown = []
        if message.get("role") == "tool":
            parts = parts_of(message.get("content"))
            shown = [*shown, *(part for part in parts if part["type"] in KINDS)]
            message = {**message, "content": text_of(message.get("content"))}
        made.append(message)
    return made[:-1]


def text_of(content: object) -> str:
    """Return the text of a message's content; line breaks join its text parts."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(str(part.get("text", "")) for part in parts_of(content) if "text" in part)
