"""What the recordings of one client on one server tell: requests, tokens, thinking, refusals."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

MODEL_PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")


@dataclass(frozen=True)
class Usage:
    """The tokens of one request, as the server has counted them."""

    prompt: int
    cached: int
    written: int

    @property
    def computed(self) -> int:
        return self.prompt - self.cached


@dataclass
class Exchange:
    """One request to the model, and its answer."""

    results: int
    """The tool results that its history holds."""
    questions: int
    """The messages of a user in its history."""
    tools: frozenset[str]
    system: str = ""
    """What its first messages, or its instructions, tell the model."""
    usage: Usage | None = None
    thinking: str = ""
    text: str = ""
    refused: str = ""
    """Why the server refused it, with the status."""


@dataclass(frozen=True)
class FollowUp:
    """A request that goes on where another has ended: tokens that are new, tokens computed."""

    new: int
    computed: int


@dataclass
class Outcome:
    """How one client fared on one server with one template."""

    version: str
    lacks: list[str]
    """What the task still lacks; empty if the round trips worked."""
    requests: int = 0
    refused: list[str] = field(default_factory=list)
    follow_ups: list[list[int]] = field(default_factory=list)
    """New and computed tokens of each request that goes on where another has ended."""
    resets: int = 0
    """How often the client went on with another system prompt, so that all behind it is new."""
    thinking: str = "none"
    """How thoughts arrived: `apart`, `as text`, or `none`."""
    usage: bool = False
    """Whether the tokens of all answered requests arrived."""


def outcome(folder: Path, version: str, lacks: list[str], thought: str) -> Outcome:
    """Read the recordings below a folder; `thought` is a part of what the model thinks."""
    made = Outcome(version, lacks)
    exchanges = list(exchanges_of(_recordings(folder)))
    answered = [each for each in exchanges if not each.refused]
    made.requests = len(exchanges)
    made.refused = [each.refused for each in exchanges if each.refused]
    made.usage = bool(answered) and all(each.usage for each in answered)
    made.follow_ups = [[each.new, each.computed] for each in follow_ups(answered)]
    made.resets = sum(_goes_on(*pair) and _is_reset(*pair) for pair in pairwise(_at_work(answered)))
    if any(thought in each.thinking for each in answered):
        made.thinking = "apart"
    elif any(thought in each.text for each in answered):
        made.thinking = "as text"
    return made


def follow_ups(exchanges: Iterable[Exchange]) -> Iterator[FollowUp]:
    """Yield the requests that go on where the one before has ended, with the same tools.

    What is new in a request is what stands behind the last one's prompt and answer. With another
    system prompt all is new, and it is no follow-up.
    """
    for before, after in pairwise(_at_work(exchanges)):
        assert before.usage is not None and after.usage is not None
        if _goes_on(before, after) and not _is_reset(before, after):
            told = before.usage.prompt + before.usage.written
            yield FollowUp(after.usage.prompt - told, after.usage.computed)


def _at_work(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Return the requests of the task: those with tools, as far as their tokens are known."""
    return [each for each in exchanges if each.usage is not None and each.tools]


def _goes_on(before: Exchange, after: Exchange) -> bool:
    more = (after.results, after.questions) > (before.results, before.questions)
    return more and after.tools == before.tools and after.questions >= before.questions


def _is_reset(before: Exchange, after: Exchange) -> bool:
    return before.system != after.system


def _recordings(folder: Path) -> Iterator[Mapping[str, Any]]:
    for file in sorted(folder.glob("*.json")):
        yield json.loads(file.read_text())


def exchanges_of(recordings: Iterable[Mapping[str, Any]]) -> Iterator[Exchange]:
    """Yield the requests to the model in recordings, whichever API they are of."""
    for each in recordings:
        path = each["path"].partition("?")[0]
        if path not in MODEL_PATHS:
            continue
        if "frames" in each:
            yield from _of_socket(each["frames"])
        elif each["method"] == "POST" and isinstance(each.get("request"), dict):
            made = asked(each["request"])
            answered = each.get("response")
            if each.get("status") != 200:
                made.refused = f"{each.get('status')} {_message(answered)}"
            else:
                read(made, _events(answered))
            yield made
        elif each.get("status") not in (200, 101, 404, 405):
            yield Exchange(0, 0, frozenset(), refused=f"{each.get('status')} on a WebSocket")


def _of_socket(frames: Iterable[Sequence[Any]]) -> Iterator[Exchange]:
    current: Exchange | None = None
    events: list[Any] = []
    for who, frame in frames:
        if who == "client" and isinstance(frame, dict):
            if current is not None:
                read(current, events)
                yield current
            current, events = asked(frame), []
        else:
            events.append(frame)
    if current is not None:
        read(current, events)
        yield current


def asked(body: Mapping[str, Any]) -> Exchange:
    """Return what a request holds, before its answer."""
    given = body.get("messages") or body.get("input") or []
    messages = given if isinstance(given, list) else []
    results = questions = 0
    for message in messages:
        kind, role = message.get("type"), message.get("role")
        if role == "tool" or str(kind).endswith("_call_output"):
            results += 1
        elif role == "user":
            content = message.get("content")
            parts = content if isinstance(content, list) else []
            found = sum(part.get("type") == "tool_result" for part in parts)
            results += found
            questions += found < max(len(parts), 1)
    tools = frozenset(_name(tool) for tool in body.get("tools") or [])
    return Exchange(results, questions, tools, _system(body, messages))


def _system(body: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]) -> str:
    """Return what stands before all other messages, as JSON."""
    roles = ("system", "developer")
    first = list(takewhile(lambda message: message.get("role") in roles, messages))
    return json.dumps([body.get("system"), body.get("instructions"), first])


def _name(tool: Mapping[str, Any]) -> str:
    name = tool.get("name") or (tool.get("function") or {}).get("name") or tool.get("type")
    return str(name)


def _events(answer: Any) -> list[Any]:
    if isinstance(answer, dict):
        return [answer]
    lines = str(answer or "").splitlines()
    data = [line[5:].strip() for line in lines if line.startswith("data:")]
    return [json.loads(each) for each in data if each.startswith("{")]


def read(exchange: Exchange, events: Iterable[Any]) -> None:
    """Read an answer, whole or in events, into its exchange."""
    counts: dict[str, Any] = {}
    for event in events:
        if not isinstance(event, dict):
            continue
        if event.get("error") or event.get("type") in ("error", "response.failed"):
            exchange.refused = f"in the stream: {_message(event)}"
        for holder in (event, event.get("response"), event.get("message")):
            if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
                counts |= {
                    key: value for key, value in holder["usage"].items() if value is not None
                }
        thinking, text = _said(event)
        exchange.thinking += thinking
        exchange.text += text
    if counts:
        exchange.usage = _usage(counts)


def _usage(counts: Mapping[str, Any]) -> Usage:
    if "prompt_tokens" in counts:  # chat
        details = counts.get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens") or 0
        return Usage(counts["prompt_tokens"], cached, counts.get("completion_tokens") or 0)
    written = counts.get("output_tokens") or 0
    if "input_tokens_details" in counts:  # responses
        cached = counts["input_tokens_details"].get("cached_tokens") or 0
        return Usage(counts["input_tokens"], cached, written)
    cached = counts.get("cache_read_input_tokens") or 0
    created = counts.get("cache_creation_input_tokens") or 0
    return Usage((counts.get("input_tokens") or 0) + cached + created, cached, written)


def _said(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return the thinking and the text that one event, or a whole answer, adds."""
    thinking, text = "", ""
    for choice in event.get("choices") or []:
        part = choice.get("delta") or choice.get("message") or {}
        thinking += part.get("reasoning") or part.get("reasoning_content") or ""
        text += part.get("content") or ""
    delta, kind = event.get("delta"), str(event.get("type"))
    if isinstance(delta, dict):  # messages
        thinking += delta.get("thinking") or ""
        text += delta.get("text") or ""
    elif isinstance(delta, str) and kind.startswith("response."):
        if "reasoning" in kind:
            thinking += delta
        elif kind == "response.output_text.delta":
            text += delta
    for block in event.get("content") or [] if kind == "message" else []:
        thinking += block.get("thinking") or ""
        text += block.get("text") or ""
    for item in event.get("output") or [] if event.get("object") == "response" else []:
        for block in item.get("content") or []:
            if item.get("type") == "reasoning":
                thinking += block.get("text") or ""
            else:
                text += block.get("text") or ""
    return thinking, text


def _message(answer: Any) -> str:
    """Return the message of an error, in one line."""
    found = answer
    while isinstance(found, dict):
        inner = found.get("error") or found.get("response") or found.get("message")
        if inner is None:
            break
        found = inner
    text = found if isinstance(found, str) else json.dumps(found)
    return " ".join(text.split())[:300]
