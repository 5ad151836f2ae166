"""Turns by `/v1/chat/completions`, which every server has: the whole history is sent each time."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from caesura.intercept.calls.events import Event, TokenLogprob
from caesura.runtime.errors import EngineFailed
from caesura.runtime.remote.heard import Heard, Tokens
from caesura.runtime.remote.server import Broken, Connection, Server, failure_of
from caesura.runtime.remote.settings import choice_of, common_fields, functions, schema_of
from caesura.scheduler.messages import Message, Sampling, SessionSpec, late_as_user

THOUGHTS = ("reasoning", "reasoning_content")
"""The fields in which servers tell what the model thought: vLLM's, and that of most others."""


def body_of(
    spec: SessionSpec, sampling: Sampling, model: str, messages: Sequence[Message]
) -> dict[str, Any]:
    """Return the body of a request for one turn, as a stream."""
    body = common_fields(spec, sampling, model)
    told = late_as_user(messages)  # servers refuse a second result of a call
    body |= {"messages": told, "stream": True, "stream_options": {"include_usage": True}}
    if sampling.max_tokens is not None:
        body["max_tokens"] = sampling.max_tokens
    if sampling.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": sampling.logprobs}
    if tools := functions(spec, sampling):
        body["tools"] = [{"type": "function", "function": each} for each in tools]
        named = {"type": "function", "function": {"name": tools[0]["name"]}}
        if (choice := choice_of(spec, sampling, named)) is not None:
            body["tool_choice"] = choice
    if sampling.text is not None and sampling.text.kind == "json_object":
        body["response_format"] = {"type": "json_object"}
    elif (schema := schema_of(sampling.text)) is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


class ChatReader:
    """Reads the chunks of one answer."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._current: Any = None
        self.finish: str | None = None
        """Why the answer ended, in OpenAI's words, once it has."""
        self.tokens = Tokens()

    def take(self, chunk: Mapping[str, Any]) -> list[Event]:
        """Return the events of one chunk. Raises `Refused` for an error."""
        if error := chunk.get("error"):
            raise failure_of(error)
        if usage := chunk.get("usage"):
            self.tokens = _tokens(usage)
        events: list[Event] = []
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            for name in THOUGHTS:
                if thought := delta.get(name):
                    self._heard.reasoning_field = name
                    events += self._heard.reasoning(thought)
                    break
            if text := delta.get("content"):
                events += self._heard.text(text, _logprobs(choice.get("logprobs")))
            for call in delta.get("tool_calls") or ():
                events += self._call(call)
            self.finish = choice.get("finish_reason") or self.finish
        return events

    def _call(self, call: Mapping[str, Any]) -> list[Event]:
        function = call.get("function") or {}
        name, call_id = function.get("name"), call.get("id")
        key = call.get("index")
        if key is None:  # some servers send whole calls without a number
            key = call_id or name or self._current
        events: list[Event] = []
        if name and not self._heard.has_call(key):
            events += self._heard.call(key, call_id, name)
            self._current = key
        return events + self._heard.arguments(key, _text(function.get("arguments")))


async def turn(
    connection: Connection, server: Server, body: Mapping[str, Any], heard: Heard, before: int
) -> AsyncGenerator[Event, None]:
    """Yield the events of a turn. Raises `Refused`, and `EngineFailed` for a broken stream.

    A stream that was broken after its first event is not begun again: another sampling would make
    other calls than those that run.
    """
    reader = ChatReader(heard)
    try:
        async with aclosing(
            connection.events("POST", f"{server.url}/chat/completions", body)
        ) as it:
            async for chunk in it:
                for event in reader.take(chunk):
                    yield event
    except Broken as error:
        if reader.finish is None:
            raise _lost(server, str(error)) from error
    if reader.finish is None:
        raise _lost(server, "the stream has no finish_reason")
    for event in heard.end(reader.finish == "length", reader.tokens, before):
        yield event


def _lost(server: Server, why: str) -> EngineFailed:
    return EngineFailed(f"the connection to {server.url} was lost within an answer: {why}")


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    prompt, completion = (
        usage.get(f"{kind}_tokens_details") or {} for kind in ("prompt", "completion")
    )
    return Tokens(
        usage.get("prompt_tokens") or 0,
        usage.get("completion_tokens") or 0,
        prompt.get("cached_tokens") or 0,
        completion.get("reasoning_tokens") or 0,
    )


def _text(arguments: object) -> str:
    """Return a part of the arguments; some servers send null."""
    return arguments if isinstance(arguments, str) else ""


def _logprobs(told: object) -> tuple[TokenLogprob, ...]:
    content = told.get("content") if isinstance(told, Mapping) else None
    return tuple(map(logprob_of, content or ()))


def logprob_of(told: Mapping[str, Any]) -> TokenLogprob:
    """Return a token and its probability, which have the same form in both protocols."""
    data = told.get("bytes")
    return TokenLogprob(
        told["token"],
        told["logprob"],
        bytes(data) if data is not None else told["token"].encode(),
        tuple(logprob_of(each) for each in told.get("top_logprobs") or ()),
    )
