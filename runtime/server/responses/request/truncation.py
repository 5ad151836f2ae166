"""Shortening a conversation that does not fit the context window, for `truncation: "auto"`."""

from collections.abc import Sequence

from caesura.scheduler.messages import Message

DROPPED_SHARE = 1 / 4
"""The share of the messages that one step drops at least."""


def shortened(messages: Sequence[Message]) -> list[Message] | None:
    """Return the messages without the oldest ones, or None if nothing can be dropped.

    System messages at the begin stay. The rest begins with a message of the user, so that no
    result is parted from its call, and holds at least the last one.
    """
    first = next(
        (number for number, each in enumerate(messages) if each.get("role") != "system"),
        len(messages),
    )
    starts = [n for n, each in enumerate(messages) if each.get("role") == "user" and n > first]
    if not starts:
        return None
    wanted = first + max(1, int((len(messages) - first) * DROPPED_SHARE))
    start = next((number for number in starts if number >= wanted), starts[-1])
    return [*messages[:first], *messages[start:]]
