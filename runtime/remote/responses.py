"""Turns by `/v1/responses` of `caesura serve`: only what is new is sent, and no turn is lost.

A turn is a response in the background, whose events the server keeps. So a client whose connection
breaks reads on where it was (`starting_after`): nothing is decoded twice, and no call is repeated.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from time import monotonic
from typing import Any

from caesura.intercept.calls.events import Event, TokenLogprob
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.remote.chat import logprob_of
from caesura.runtime.remote.heard import Heard, Tokens
from caesura.runtime.remote.server import (
    FIRST_WAIT,
    Broken,
    Connection,
    Refused,
    Server,
    failure_of,
)
from caesura.runtime.remote.settings import (
    allowed_of,
    choice_of,
    common_fields,
    functions,
    schema_of,
)
from caesura.scheduler.messages import (
    Message,
    Sampling,
    SessionSpec,
    late_as_user,
    parts_of,
    text_of,
)

LOST = "previous_response_not_found"
"""The code of an answer to a request that continues a response which the server does not have."""
ENDINGS = {f"response.{status}" for status in ("completed", "incomplete", "failed", "cancelled")}
_DELTAS = {
    "response.output_text.delta": "message",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "function_call",
}
"""The events that bring text, and the types of their items."""
_LOGPROBS = "message.output_text.logprobs"


def body_of(
    spec: SessionSpec,
    sampling: Sampling,
    model: str,
    messages: Sequence[Message],
    previous: str | None,
) -> dict[str, Any]:
    """Return the body of a request for one turn; `messages` follow the response `previous`."""
    body = common_fields(spec, sampling, model)
    told = late_as_user(messages)  # servers refuse a second result of a call
    body |= {"input": items_of(told), "stream": True, "background": True, "store": True}
    if previous is not None:
        body["previous_response_id"] = previous
    if sampling.max_tokens is not None:
        body["max_output_tokens"] = sampling.max_tokens
    if sampling.logprobs is not None:
        body |= {"include": [_LOGPROBS], "top_logprobs": sampling.logprobs}
    if tools := functions(spec, sampling, also_forbidden=True):
        body["tools"] = [{"type": "function", "strict": False, **each} for each in tools]
        named = {"type": "function", "name": tools[0]["name"]}
        choice = choice_of(spec, sampling, named)
        if (allowed := allowed_of(spec, sampling)) is not None:  # the prompt lists all tools
            mode = "auto" if choice is None else "required"
            listed = [{"type": "function", "name": name} for name in allowed]
            choice = {"type": "allowed_tools", "mode": mode, "tools": listed} if listed else "none"
        if choice is not None:
            body["tool_choice"] = choice
    if sampling.text is not None and sampling.text.kind == "json_object":
        body["text"] = {"format": {"type": "json_object"}}
    elif (schema := schema_of(sampling.text)) is not None:
        body["text"] = {"format": {"type": "json_schema", **schema}}
    return body


def items_of(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages as items of Responses. Raises `UsageError` for a part that has no form."""
    items: list[dict[str, Any]] = []
    for message in messages:
        role, content = message["role"], message.get("content")
        if role == "tool":
            told = {"type": "function_call_output", "call_id": message["tool_call_id"]}
            items.append({**told, "output": _content(content)})
            continue
        if role != "assistant":
            items.append({"type": "message", "role": role, "content": _content(content)})
            continue
        if thought := message.get("reasoning") or message.get("reasoning_content"):
            part = {"type": "reasoning_text", "text": thought}
            items.append({"type": "reasoning", "summary": [], "content": [part]})
        if text := text_of(content):
            part = {"type": "output_text", "text": text, "annotations": []}
            items.append({"type": "message", "role": role, "content": [part]})
        for call in message.get("tool_calls") or ():
            function = {name: call["function"][name] for name in ("name", "arguments")}
            items.append({"type": "function_call", "call_id": call["id"], **function})
    return items


def _content(content: object) -> str | list[dict[str, Any]]:
    if not parts_of(content):
        return text_of(content)
    return [_part(part) for part in parts_of(content)]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    match part["type"]:
        case "text":
            return {"type": "input_text", "text": part["text"]}
        case "image_url":
            url = part["image_url"]
            told = url if isinstance(url, Mapping) else {"url": url}
            detail = told.get("detail") or "auto"
            return {"type": "input_image", "image_url": told["url"], "detail": detail}
        case "input_audio":
            return dict(part)
        case kind:
            raise UsageError(f"a remote engine takes text, pictures and sounds, got {kind!r}")


class ResponseReader:
    """Reads the events of one response, and knows how far it has come."""

    def __init__(self, heard: Heard, response_id: str | None = None) -> None:
        """Create it; a response that was begun before is read from its begin."""
        self._heard = heard
        self._read: dict[str, int] = {}
        """The characters of each item that were heard."""
        self.id = response_id
        """The response's id, once the server has begun it."""
        self.after = -1
        """The number of the last event that was read."""
        self.ending: Mapping[str, Any] | None = None
        """The whole response, once it has ended."""

    def take(self, event: Mapping[str, Any]) -> list[Event]:
        """Return the events of one event of the stream. Raises `Refused` for a failure."""
        self.after = event.get("sequence_number", self.after)
        kind = event.get("type")
        if kind == "error":
            raise failure_of(event.get("error") or event)
        if kind in ENDINGS:
            return self._end(event["response"])
        if kind == "response.created":
            self.id = event["response"]["id"]
        elif kind == "response.output_item.added":
            return self._add(event["item"])
        elif kind in _DELTAS:
            logprobs = tuple(map(logprob_of, event.get("logprobs") or ()))
            return self._hear(_DELTAS[kind], event["item_id"], event["delta"], logprobs)
        return []

    def _add(self, item: Mapping[str, Any]) -> list[Event]:
        if item["type"] != "function_call" or self._heard.has_call(item["id"]):
            return []
        return self._heard.call(item["id"], item["call_id"], item["name"])

    def _hear(
        self, kind: str, item_id: str, text: str, logprobs: tuple[TokenLogprob, ...] = ()
    ) -> list[Event]:
        self._read[item_id] = self._read.get(item_id, 0) + len(text)
        match kind:
            case "function_call":
                return self._heard.arguments(item_id, text)
            case "reasoning":
                return self._heard.reasoning(text)
            case _:
                return self._heard.text(text, logprobs)

    def _end(self, whole: Mapping[str, Any]) -> list[Event]:
        """Take the end; the whole output tells what the events before did not."""
        if whole["status"] in ("failed", "cancelled"):
            raise failure_of(whole.get("error") or f"the response was {whole['status']}")
        self.ending = whole
        events: list[Event] = []
        for item in whole["output"]:
            if item["type"] in _DELTAS.values():
                events += self._add(item)
                if rest := _text_of(item)[self._read.get(item["id"], 0) :]:
                    events += self._hear(item["type"], item["id"], rest)
        return events

    @property
    def cut(self) -> bool:
        """Whether a token limit ended the response."""
        return self.ending is not None and self.ending["status"] == "incomplete"

    @property
    def tokens(self) -> Tokens:
        """What the server counted."""
        usage = (self.ending or {}).get("usage") or {}
        return Tokens(
            usage.get("input_tokens", 0),
            usage.get("output_tokens", 0),
            (usage.get("input_tokens_details") or {}).get("cached_tokens", 0),
            (usage.get("output_tokens_details") or {}).get("reasoning_tokens", 0),
        )


def _text_of(item: Mapping[str, Any]) -> str:
    if item["type"] == "function_call":
        return str(item["arguments"])
    return "".join(part.get("text", "") for part in item["content"])


async def turn(
    connection: Connection, server: Server, body: Mapping[str, Any], reader: ResponseReader
) -> AsyncGenerator[Event, None]:
    """Yield the events of a turn without its last one.

    Raises `Refused`, and `EngineFailed` for a server that stays away. Closing the iterator cancels
    the response.
    """
    url = f"{server.url}/responses"
    try:
        lost_at: float | None = None
        while reader.ending is None:
            if reader.id is None:
                stream = connection.events("POST", url, body)
            else:
                after = f"&starting_after={reader.after}" if reader.after >= 0 else ""
                stream = connection.events("GET", f"{url}/{reader.id}?stream=true{after}")
            heard = reader.after
            try:
                async with aclosing(stream):
                    async for event in stream:
                        for made in reader.take(event):
                            yield made
                why = "the stream ended too soon"
            except Broken as error:
                why = str(error)
            if reader.after > heard:
                lost_at = None
            lost_at = monotonic() if lost_at is None else lost_at
            if reader.ending is None and monotonic() - lost_at > server.patience:
                raise EngineFailed(f"the connection to {server.url} was lost: {why}")
            if reader.ending is None:
                await asyncio.sleep(FIRST_WAIT)
    finally:
        if reader.ending is None and reader.id is not None:
            await asyncio.shield(_cancel(connection, f"{url}/{reader.id}/cancel"))


async def _cancel(connection: Connection, url: str) -> None:
    with suppress(Refused, EngineFailed):
        await connection.ask("POST", url, {})
