"""Which roles a chat template takes where, and messages arranged so that it takes all of them.

Many templates refuse a system message behind the first, or two messages of the user in a row.
Others write one of them elsewhere, or leave it out without a word, as they do with the text beside
a call. So each template is asked once: small conversations of marked texts are rendered, and each
text has to arrive in its place. What is not taken is written where it stands in another role, so
that what comes before it stays the same and is found in the prefix cache. vLLM moves such a message
into the first one instead.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from caesura.scheduler.messages import (
    LATE,
    Message,
    ToolSpec,
    has_media,
    late_as_user,
    parts_of,
    text_of,
)

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
_SECOND = {**_CALL, "id": "abcdefghj"}
_LATER = ("us", "usa", "usu", "ussu", "usau", "uas", "uasu")
_WITHOUT_TEXT = "cCe"
"""Letters of messages that have no text of their own: calls, several calls, and nothing."""
_LATER_BEHIND_RESULTS = ("ucrs", "ucrsa", "ucrsu")
_LATE = ("ucrar", "ucrarau", "ucracrr", "uar", "uarau")
"""Results behind later messages. What follows a turn is written without what is before it."""


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
    answers: bool = True
    """Two messages of the assistant in a row."""
    empty: bool = True
    """A message of the assistant without text and calls."""
    several_calls: bool = True
    """A message with several calls, before their results."""
    beside_calls: bool = True
    """A text in a message with calls."""
    before_calls: bool = True
    """A text of the assistant in a message before the one with calls."""
    late: bool = True
    """A result that stands behind later messages than its call's results."""

    @property
    def told(self) -> tuple[str, ...]:
        """What is written otherwise than it was sent, in words, and what is lost."""
        said = [words for name, words in _OTHERWISE.items() if not getattr(self, name)]
        if not self.beside_calls:
            said.append(_SPLIT if self.before_calls else _LOST)
        return tuple(said)

    def arranged(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages in which each text stands in a role that the template takes there.

        Parts that are all text become one.
        """
        told = [*messages] if self.late else late_as_user(messages)
        messages = [*self._taken(told)]
        leading = leading_system(messages)
        later = messages[len(leading) :]
        if len(leading) > 1 and not self.several:
            texts = filter(None, (text_of(each.get("content")) for each in leading))
            leading = [{"role": "system", "content": BETWEEN.join(texts)}]
        made: list[Message] = []
        for message in (*_of_system(leading, self.system), *_of_system(later, self.later)):
            if made and self._takes_up(made[-1], message):
                content = _joined(made[-1].get("content"), message.get("content"))
                message = {**made.pop(), "content": content}
            made.append(message)
        return made

    def rearranges(self, messages: Sequence[Message]) -> bool:
        """Return whether messages are written otherwise than they are."""
        return [*map(dict, self.arranged(messages))] != [*map(dict, messages)]

    def _takes_up(self, before: Message, message: Message) -> bool:
        """Return whether a message has to become a part of the one before it."""
        match before.get("role"), message.get("role"):
            case "user", "user":
                return not self.questions
            case "tool", "user":
                return not self.behind_results and not has_media([before, message])
            case "assistant", "assistant":
                calls = before.get("tool_calls") or message.get("tool_calls")
                return not self.answers and not calls
        return False

    def _taken(self, messages: Sequence[Message]) -> Iterator[Message]:
        """Yield the messages, with those of the assistant in the form that the template takes."""
        results: dict[Any, list[Message]] = {}
        for number, message in enumerate(messages):
            message = _with_text(message)
            if message.get(LATE):
                yield {key: each for key, each in message.items() if key != LATE}
                continue
            if message.get("role") == "tool" and message.get("tool_call_id") in results:
                continue  # it stands behind its call already
            if message.get("role") != "assistant":
                yield message
                continue
            calls = message.get("tool_calls") or ()
            is_last = number == len(messages) - 1
            if not (calls or message.get("content") or self.empty or is_last):
                continue
            if calls and message.get("content") and self.before_calls and not self.beside_calls:
                yield {key: each for key, each in message.items() if key != "tool_calls"}
                message = {"role": "assistant", "content": "", "tool_calls": calls}
            if len(calls) < 2 or self.several_calls:
                yield message
                continue
            results |= _results_of(messages[number + 1 :], calls)
            for place, call in enumerate(calls):
                kept = message if place == 0 else {"role": "assistant", "content": ""}
                yield {**kept, "tool_calls": [call]}
                yield from results.get(call.get("id"), ())


_OTHERWISE = {
    "system": "a system message becomes the user's",
    "several": "several system messages become one",
    "later": "a later system message becomes the user's, in its place",
    "questions": "messages of the user in a row become one",
    "behind_results": "a question behind a result becomes a part of it",
    "answers": "answers in a row become one",
    "empty": "an answer without text and calls is left out",
    "several_calls": "calls of one turn become turns of one call each",
    "late": "a result behind later messages becomes the user's",
}
_SPLIT = "a text beside a call becomes an answer before it"
_LOST = "a text beside a call is lost"


def _with_text(message: Message) -> Message:
    """Return a message with its parts as one text, if they are all text."""
    content = message.get("content")
    if content is None or isinstance(content, str) or has_media([message]):
        return message
    return {**message, "content": text_of(content)}


def _results_of(messages: Sequence[Message], calls: Sequence[Any]) -> dict[Any, list[Message]]:
    """Return the results of calls that directly follow them, by the calls' ids."""
    found: dict[Any, list[Message]] = {call.get("id"): [] for call in calls}
    for message in messages:
        if message.get("role") != "tool":
            break
        if message.get("tool_call_id") in found and not message.get(LATE):
            found[message["tool_call_id"]].append(_with_text(message))
    return found


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
        answers=takes("uaau", "uaaau"),
        empty=takes("ueu", "ueuau"),
        several_calls=not calls or takes("uCrR", "uCrRau"),
        beside_calls=not calls or takes("utr"),
        before_calls=not calls or takes("uacr", "uacrau"),
        late=not calls or (takes(*_LATE) and _begins_alike(render)),
    )
    if found.told:
        said = "; ".join(found.told)
        logger.info("the chat template does not take all messages as they may be sent: %s", said)
    return found


def _begins_alike(render: Render) -> bool:
    """Return whether a late result is written alike with and without its call in sight.

    The model's next turn must also begin behind it as behind a question. The templates of DeepSeek
    go on within the turn of the call instead, which has ended.
    """
    behind = []
    for conversation in ("ucrar", "uar", "u"):
        messages = [_marked(letter, at) for at, letter in enumerate(conversation)]
        text = render(messages, (_TOOL,))
        before = _mark(len(conversation) - (2 if len(conversation) > 1 else 1))
        behind.append(text[text.rindex(before) + len(before) :])
    with_call, alone, asked = behind
    pairs = zip(reversed(alone), reversed(asked), strict=False)
    same = takewhile(lambda pair: pair[0] == pair[1], pairs)
    marked = [text.replace(_mark(at), "") for text, at in ((with_call, 4), (alone, 2))]
    return marked[0] == marked[1] and any(letter.isalpha() for letter, _ in same)


def pictures_in(render: Render) -> tuple[str, ...]:
    """Return the roles in whose messages the template writes pictures: user, and tool for results.

    The template gets the part that vLLM makes of a picture.
    """
    found = []
    for role, conversation in (("user", "u"), ("tool", "ucr")):
        messages = [_marked(letter, number) for number, letter in enumerate(conversation)]
        text = {"type": "text", "text": messages[-1]["content"]}
        without, shown = (
            [*messages[:-1], {**messages[-1], "content": parts}]
            for parts in ([text], [text, {"type": "image"}])
        )
        try:
            bare, written = render(without, (_TOOL,)), render(shown, (_TOOL,))
        except Exception:
            continue  # templates raise many classes of errors
        as_it_is = written.count("type") > bare.count("type")  # some write the list itself
        if len(written) > len(bare) and _MARK in bare and not as_it_is:
            found.append(role)
    return tuple(found)


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
    told = zip(places, conversation, strict=True)
    rest = [at for at, letter in told if letter not in _WITHOUT_TEXT][begin:]
    return all(-1 not in part and part == sorted(part) for part in (places[:begin], rest))


def _marked(letter: str, number: int) -> Message:
    match letter:
        case "c" | "C":
            calls = [_CALL] if letter == "c" else [_CALL, _SECOND]
            return {"role": "assistant", "content": "", "tool_calls": calls}
        case "t":
            return {"role": "assistant", "content": _mark(number), "tool_calls": [_CALL]}
        case "e":
            return {"role": "assistant", "content": ""}
        case "r" | "R":
            call = _CALL if letter == "r" else _SECOND
            result = {"role": "tool", "tool_call_id": call["id"], "name": "look"}
            return {**result, "content": _mark(number)}
    role = {"s": "system", "u": "user", "a": "assistant"}[letter]
    return {"role": role, "content": _mark(number)}


def _mark(number: int) -> str:
    return f"{_MARK}-{number}-"
