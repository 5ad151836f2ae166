"""What a history tells the model, as digests: equal digests told it the same.

Clients write a history again before they send it back. They space the JSON of a call's arguments
differently, order its keys, escape its letters, number the calls anew, add fields of their own, and
leave the thinking out or put it into the text. None of that changes what the model was told.
"""

import json
import marshal
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import repeat
from threading import Lock
from typing import Any
from zlib import crc32

from caesura.scheduler.messages import Message, SessionSpec

REASONING = ("reasoning", "reasoning_content")
"""Fields of an answer that most clients leave out when they send it back."""
CONTEXT = ("tools", "chat_template_kwargs", "cache_salt")
"""What shapes a prompt besides the messages."""
FIELDS = ("role", "content", "name", "tool_calls", "arguments", "fields")
"""The parts of a message that are compared apart; `fields` are those that only a template names."""
PRINT_BYTES = 4
"""Bytes of a part's fingerprint, which says only where two histories differ."""
DIGEST_BYTES = 32
MAX_KNOWN_MESSAGES = 131_072
"""The most messages of histories whose reading is kept, about 100 bytes each."""
MAX_KNOWN_TOOLS = 512
_STANDARD = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", *REASONING})
_EMPTY: tuple[object, ...] = (None, "", [], ())
_PLACE = re.compile(r"messages\[(\d+)\]")
_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")


@dataclass(frozen=True, slots=True)
class Reads:
    """What a chat template reads of messages.

    `template` is its text: a field whose name does not stand in it is not read, unless the template
    writes all `fields`. `ids` says whether it writes the ids of calls. `thinking` are the openers
    and closers of the regions in which the model thinks.
    """

    template: str = ""
    ids: bool = False
    fields: bool = False
    thinking: tuple[tuple[str, str], ...] = ()

    def counts(self, field: str) -> bool:
        """Return whether a field of a message may shape the prompt."""
        return self.fields or field in self.template


@dataclass(frozen=True, slots=True)
class History:
    """Messages as digests; those of a remembered answer end with it."""

    key: bytes
    """Digest of all that shapes the prompt: the messages, the tools and the template's variables.

    The owner and the cache salt belong to it too.
    """
    mark: bytes
    """Digest of the answer alone: the ids of its calls, or without calls its text."""
    before: bytes
    """Digest of what the answer follows."""
    ids: bytes
    """Digest of the ids of all calls, as they are spelled."""
    reasoning: tuple[bytes | None, ...]
    """Digests of the reasoning of each message; None for one without."""
    context: tuple[bytes, ...]
    """Digests of `CONTEXT`."""
    prints: bytes
    """Fingerprints of the `FIELDS` of each message."""
    exact_thinking: bool = False
    """Whether the model is not to see thinking that the messages lack."""

    @property
    def messages(self) -> int:
        """The number of messages."""
        return len(self.reasoning)

    @property
    def size_bytes(self) -> int:
        """The memory that grows with the number of messages."""
        return len(self.prints) + 8 * len(self.reasoning)


@dataclass(frozen=True, slots=True)
class _Tools:
    """The tools that the model is shown: their digest, and the schemas of their arguments."""

    digest: bytes
    schemas: Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class _Reading:
    """What the messages so far told the model. One that is kept is never changed."""

    digests: bytes = b""
    prints: bytes = b""
    reasoning: tuple[bytes | None, ...] = ()
    spelled: bytes = b""
    """Digest of the ids of calls and of what results answer, as they came."""
    references: bytes = b""
    """Digest of what results answer: the latest call of their id by number, or an id of no call."""
    numbers: dict[str, int] = field(default_factory=dict)
    calls: int = 0

    def copy(self) -> "_Reading":
        return replace(self, numbers=dict(self.numbers))


class Histories:
    """Reads histories for one chat template; callable from any thread.

    What was read of all messages but the latest ones is kept. So a conversation that goes on costs
    a hash of what is known, and the reading of what is new.
    """

    def __init__(self, reads: Reads = Reads()) -> None:
        """Create it for what a template reads."""
        self._reads = reads
        self._lock = Lock()
        self._known: OrderedDict[bytes, _Reading] = OrderedDict()
        self._known_messages = 0
        self._known_tools: dict[bytes, _Tools] = {}

    def of(self, messages: Sequence[Message], spec: SessionSpec) -> History:
        """Return the digests of messages, of which there is at least one."""
        tools = self._tools(spec.tools)
        context = (tools.digest, _digest(sorted(spec.template.items())), _digest(spec.cache_salt))
        begin = _digest([spec.owner, *map(bytes.hex, context)])
        reading = self._before_last(messages, tools).copy()
        before = _hash(begin + reading.digests)
        self._read(reading, messages[-1:], tools)
        shape = reading.spelled if self._reads.ids else reading.references
        calls = [str(call.get("id")) for call in messages[-1].get("tool_calls") or ()]
        named = _digest(calls) if calls else reading.digests[-DIGEST_BYTES:]
        return History(
            key=_hash(begin + reading.digests + shape),
            mark=_hash(_digest(spec.owner) + named),
            before=before,
            ids=reading.spelled,
            reasoning=reading.reasoning,
            context=context,
            prints=reading.prints,
            exact_thinking=spec.exact_thinking,
        )

    def _tools(self, tools: Sequence[Any]) -> _Tools:
        digest = _digest(list(tools))
        known = self._known_tools.get(digest)
        if known is None:
            known = _Tools(digest, _schemas(tools))
            with self._lock:
                if len(self._known_tools) >= MAX_KNOWN_TOOLS:
                    self._known_tools.clear()
                self._known_tools[digest] = known
        return known

    def _before_last(self, messages: Sequence[Message], tools: _Tools) -> _Reading:
        """Return what the messages before the last one told; it must not be changed."""
        end = len(messages) - 1
        backwards = range(end - 1, 0, -1)
        cut = next((at for at in backwards if messages[at].get("role") == "assistant"), 0)
        try:
            # Version 2 writes equal values equally; later ones write what is one object once.
            plain: Sequence[Any] = messages[:end]
            raw = list(map(marshal.dumps, plain, repeat(2)))
        except ValueError:  # some value is no plain data
            raw = None
        known, hashed = None, sha256(tools.digest)
        if raw is not None:
            hashed.update(b"".join(raw[:cut]))
            known = self._kept(hashed.digest()) if cut else None
        reading = _Reading() if known is None else known.copy()
        self._read(reading, messages[0 if known is None else cut : end], tools)
        if raw is not None and end:
            hashed.update(b"".join(raw[cut:]))
            self._keep(hashed.digest(), reading)
        return reading

    def _kept(self, name: bytes) -> _Reading | None:
        with self._lock:
            known = self._known.get(name)
            if known is not None:
                self._known.move_to_end(name)
        return known

    def _keep(self, name: bytes, reading: _Reading) -> None:
        with self._lock:
            old = self._known.pop(name, None)
            self._known_messages += len(reading.reasoning) - (len(old.reasoning) if old else 0)
            self._known[name] = reading
            while self._known_messages > MAX_KNOWN_MESSAGES:
                _, old = self._known.popitem(last=False)
                self._known_messages -= len(old.reasoning)

    def _read(self, reading: _Reading, messages: Sequence[Message], tools: _Tools) -> None:
        """Add what messages tell to what was told before them."""
        digests, prints, reasoning = [], [], []
        numbers = reading.numbers
        for message in messages:
            told, thought = self._told(message, tools)
            written = [json.dumps(told[name], default=str).encode() for name in FIELDS]
            digests.append(_hash(b"\n".join(written)))
            prints += [crc32(each).to_bytes(PRINT_BYTES) for each in written]
            reasoning.append(thought)
            for call in message.get("tool_calls") or ():
                name = str(call.get("id"))
                reading.spelled = _hash(reading.spelled + _digest(name))
                numbers[name] = reading.calls
                reading.calls += 1
            if message.get("tool_call_id"):
                name = str(message["tool_call_id"])
                reading.spelled = _hash(reading.spelled + _digest(name))
                reading.references = _hash(reading.references + _digest(numbers.get(name, name)))
        reading.digests += b"".join(digests)
        reading.prints += b"".join(prints)
        reading.reasoning += tuple(reasoning)

    def _told(self, message: Message, tools: _Tools) -> tuple[dict[str, Any], bytes | None]:
        """Return the `FIELDS` of a message, of which empty ones are missing, and its reasoning."""
        plain = {name: value for name, value in message.items() if value not in _EMPTY}
        content, thought = plain.get("content"), None
        if plain.get("role") == "assistant":
            thought = next((plain[name] for name in REASONING if name in plain), None)
            if isinstance(content, str):
                thought, content = self._apart(thought, content)
        functions = [call["function"] for call in plain.get("tool_calls", ())]
        told = {
            "role": plain.get("role"),
            "content": content or None,
            "name": plain.get("name"),
            "tool_calls": [function.get("name") for function in functions],
            "arguments": [_arguments(function, tools.schemas) for function in functions],
            "fields": sorted(
                (name, value)
                for name, value in plain.items()
                if name not in _STANDARD and self._reads.counts(name)
            ),
        }
        return told, _thought(thought)

    def _apart(self, reasoning: object, content: str) -> tuple[object, str]:
        """Return an answer's reasoning and text; the text may begin with a region of thinking."""
        text = content.lstrip()
        for opener, closer in self._reads.thinking:
            if text.startswith(opener) and closer in text:
                thought, _, text = text.removeprefix(opener).partition(closer)
                return reasoning or thought, text.lstrip("\n")
        return reasoning, content.lstrip("\n")


def length_up_to_answer(messages: Sequence[Message]) -> int | None:
    """Return the number of messages up to the last answer, or None if nothing follows an answer."""
    if not messages or messages[-1].get("role") == "assistant":
        return None
    places = range(len(messages), 0, -1)
    return next((at for at in places if messages[at - 1].get("role") == "assistant"), None)


def thinks_otherwise(sent: History, kept: History) -> int | None:
    """Return the place of the first answer that came back with other reasoning, or None."""
    pairs = zip(sent.reasoning, kept.reasoning, strict=True)
    exact = sent.exact_thinking
    differs = (
        at for at, (new, old) in enumerate(pairs) if (exact or new is not None) and new != old
    )
    return next(differs, None)


def difference(sent: History, kept: History) -> str | None:
    """Return the first field in which two histories differ, or None if they tell the same.

    It is named as by `first_difference`.
    """
    if sent.key == kept.key and thinks_otherwise(sent, kept) is None:
        return None
    return first_difference(sent, kept)


def first_difference(sent: History, kept: History) -> str:
    """Return the name of the first field in which a history differs from one that is remembered.

    It is one of `CONTEXT`, a field of a message such as `messages[3].content`, a message such as
    `messages[3]` that one of the two lacks, or `messages.tool_call_id` where only the calls that
    results belong to differ.
    """
    if sent.key == kept.key:
        return f"messages[{thinks_otherwise(sent, kept)}].reasoning"
    for name, new, old in zip(CONTEXT, sent.context, kept.context, strict=True):
        if new != old:
            return name
    width = PRINT_BYTES * len(FIELDS)
    both = zip(_cut(sent.prints, width), _cut(kept.prints, width), strict=False)
    for at, (new, old) in enumerate(both):
        if new != old:
            pairs = zip(FIELDS, _cut(new, PRINT_BYTES), _cut(old, PRINT_BYTES), strict=True)
            return f"messages[{at}].{next(name for name, one, other in pairs if one != other)}"
    if len(sent.prints) != len(kept.prints):
        return f"messages[{min(len(sent.prints), len(kept.prints)) // width}]"
    return "messages.tool_call_id"


def place_of(field: str) -> int | None:
    """Return the place of the message that a field belongs to: 3 for `messages[3].content`."""
    found = _PLACE.match(field)
    return None if found is None else int(found[1])


def kind_of(field: str) -> str:
    """Return a field without the place of its message: `content` for `messages[3].content`."""
    return field.rpartition(".")[2].partition("[")[0]


def _cut(data: bytes, width: int) -> Iterator[bytes]:
    return (data[at : at + width] for at in range(0, len(data), width))


def _thought(reasoning: object) -> bytes | None:
    """Return the digest of an answer's reasoning; how its words are spaced does not count."""
    if reasoning is None:
        return None
    words = reasoning.split() if isinstance(reasoning, str) else reasoning
    return _digest(words)


# -- arguments -----------------------------------------------------------------------------------


class _Number(str):
    """A number of JSON in the one spelling that its value has here."""


def _arguments(function: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the arguments of a call in the one spelling that their value has here.

    What is no JSON, or not the same for all readers of JSON, is compared as text.
    """
    given = function.get("arguments")
    text = given if isinstance(given, str) else json.dumps(given, default=str)
    schema = schemas.get(str(function.get("name")), {})
    try:
        return f"json {_written(_parsed(text or '{}'), schema, schema)}"
    except (ValueError, RecursionError):
        return f"text {text}"


def _parsed(text: str) -> Any:
    """Return a value of JSON with exact numbers; raise `ValueError` for a key that stands twice."""
    return json.loads(
        text,
        object_pairs_hook=_object,
        parse_int=_number,
        parse_float=_number,
        parse_constant=_refused,
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice")
    return made


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _number(text: str) -> _Number:
    """Return a number as its digits and the power of ten behind them, exact for any length."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is no number")
    sign, whole, fraction, power = found.groups()
    digits = (whole + (fraction or "")).lstrip("0")
    kept = digits.rstrip("0")
    exponent = int(power or 0) - len(fraction or "") + len(digits) - len(kept)
    return _Number(f"{sign}{kept}e{exponent}" if kept else "0")


def _written(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Return a value in one spelling, without the members that have their schema's default."""
    if isinstance(value, _Number):
        return str(value)
    schema = _resolved(schema, root)
    if isinstance(value, list):
        inner = _mapping(schema.get("items"))
        return f"[{','.join(_written(each, inner, root) for each in value)}]"
    if not isinstance(value, dict):
        return json.dumps(value)
    properties = _mapping(schema.get("properties"))
    members = []
    for name in sorted(value):
        inner = _mapping(properties.get(name))
        written = _written(value[name], inner, root)
        if "default" not in inner or written != _default(inner, root):
            members.append(f"{json.dumps(name)}:{written}")
    return f"{{{','.join(members)}}}"


def _default(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str | None:
    try:
        return _written(_parsed(json.dumps(schema["default"])), schema, root)
    except (TypeError, ValueError, RecursionError):
        return None


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a schema's reference within the tool names, or the schema itself."""
    name = schema.get("$ref")
    if not isinstance(name, str) or not name.startswith("#"):
        return schema
    place: Any = root
    for step in name.split("/")[1:]:
        place = _mapping(place).get(step)
    return _mapping(place)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _schemas(tools: Sequence[Any]) -> dict[str, Mapping[str, Any]]:
    """Return the schemas of the tools' arguments by the tools' names."""
    functions = [_mapping(_mapping(tool).get("function")) for tool in tools]
    return {str(each.get("name")): _mapping(each.get("parameters")) for each in functions}


# -- digests -------------------------------------------------------------------------------------


def _digest(value: object) -> bytes:
    return _hash(json.dumps(value, default=str).encode())


def _hash(data: bytes) -> bytes:
    return sha256(data).digest()
