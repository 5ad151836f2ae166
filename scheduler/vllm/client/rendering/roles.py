"""Which roles a chat template takes where, and messages arranged so that it takes all of them.

Many templates refuse a system message behind the first, or two messages of the user in a row.
Others write one of them elsewhere, or leave it out without a word. So each template is asked once:
small conversations of marked texts are rendered, and each text has to arrive in its place. What is
not taken is written where it stands in another role, so that what comes before it stays the same
and is found in the prefix cache. vLLM moves such a message into the first one instead.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from caesura.scheduler.messages import Message, ToolSpec, has_media, parts_of, text_of

logger = logging.getLogger(__name__)

TRUSTED = ("system", "developer")
"""Roles of messages from those who run the program, which a model is to follow."""
BETWEEN = "\n\n"
"""What stands between two texts that become one message."""
Render = Callable[[Sequence[Message], Sequence[ToolSpec]], str]
"""Writes messages by a template; it may raise anything."""

_MARK = uuid.uuid4().hex
_TOOL: ToolSpec = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look.",
        "parameters": {"type": "object", "properties": {}},
    },
}
_CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "look", "arguments": "{}"}}
_LATER = ("us", "usa", "usu", "ussu", "usau", "uas", "uasu")
_LATER_BEHIND_RESULTS = ("ucrs", "ucrsa", "ucrsu")


@dataclass(frozen=True, slots=True)
class Roles:
    """What a template takes; what it cannot be asked, it takes."""

    system: bool = True
    """A system message at the begin."""
    several: bool = True
    """Several of them at the begin."""
    later: bool = True
    """A system message behind another message, in its place."""
    questions: bool = True
    """Two messages of the user in a row."""
    behind_results: bool = True
    """A message of the user behind the result of a call."""

    def arranged(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages in which each text stands in a role that the template takes there."""
        leading = leading_system(messages)
        later = messages[len(leading) :]
        if len(leading) > 1 and not self.several:
            texts = filter(None, (text_of(each.get("content")) for each in leading))
            leading = [{"role": "system", "content": BETWEEN.join(texts)}]
        made: list[Message] = []
        for message in (*_of_system(leading, self.system), *_of_system(later, self.later)):
            if made and message.get("role") == "user" and self._takes_up(made[-1], message):
                content = _joined(made[-1].get("content"), message.get("content"))
                message = {**made.pop(), "content": content}
            made.append(message)
        return made

    def _takes_up(self, before: Message, message: Message) -> bool:
        """Return whether a message of the user has to become a part of the one before it."""
        match before.get("role"):
            case "user":
                return not self.questions
            case "tool":
                return not self.behind_results and not has_media([before, message])
        return False


def leading_system(messages: Sequence[Message]) -> list[Message]:
    """Return the system messages with which a conversation begins."""
    ends = (at for at, each in enumerate(messages) if each.get("role") not in TRUSTED)
    return list(messages[: next(ends, len(messages))])


def _of_system(messages: Sequence[Message], taken: bool) -> Iterator[Message]:
    """Yield the messages, with those of the system as the user's unless they are taken."""
    role = "system" if taken else "user"
    for message in messages:
        yield {**message, "role": role} if message.get("role") in TRUSTED else message


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return BETWEEN.join(text for text in (first, second) if text)
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else [*parts_of(content)]


def probed(render: Render) -> Roles:
    """Return what the template takes behind `render`, with tools and without."""
    asked = [tools for tools in ((), (_TOOL,)) if _arrives(render, "u", tools)]
    if not asked:
        return Roles()

    def takes(*conversations: str) -> bool:
        return all(_arrives(render, each, tools) for each in conversations for tools in asked)

    calls = takes("ucr", "ucrau")
    # Mistral Nemo's template leaves the system message out while the last message is a result.
    system = takes("su", "suau", *(("sucr",) if calls else ()))
    begin = "s" if system else ""
    later = [*_LATER, *(_LATER_BEHIND_RESULTS if calls else ())]
    found = Roles(
        system=system,
        several=system and takes("ssu", "sssu"),
        later=takes(*(begin + each for each in later)),
        questions=takes("uu", "uuu", "uauu"),
        behind_results=not calls or takes("ucru", "ucruau"),
    )
    if found != Roles():
        lacks = ", ".join(each.name for each in fields(found) if not getattr(found, each.name))
        logger.info(
            "the chat template does not take all messages where they may stand (%s): their texts"
            " are joined to the ones before them, or written as the user's",
            lacks,
        )
    return found


def _arrives(render: Render, conversation: str, tools: Sequence[ToolSpec]) -> bool:
    """Return whether all texts of a conversation, one letter a message, are rendered in order.

    A template may write the system messages of the begin where it likes.
    """
    messages = [_marked(letter, number) for number, letter in enumerate(conversation)]
    try:
        text = render(messages, tools)
    except Exception:
        return False  # templates raise many classes of errors
    places = [text.find(_mark(number)) for number in range(len(conversation))]
    begin = len(leading_system(messages))
    rest = [at for at, letter in zip(places, conversation, strict=True) if letter != "c"][begin:]
    return all(-1 not in part and part == sorted(part) for part in (places[:begin], rest))


def _marked(letter: str, number: int) -> Message:
    match letter:
        case "c":
            return {"role": "assistant", "content": "", "tool_calls": [_CALL]}
        case "r":
            result = {"role": "tool", "tool_call_id": _CALL["id"], "name": "look"}
            return {**result, "content": _mark(number)}
    role = {"s": "system", "u": "user", "a": "assistant"}[letter]
    return {"role": role, "content": _mark(number)}


def _mark(number: int) -> str:
    return f"{_MARK}-{number}-"
