"""Chat completions that vLLM's own server answers, with follow-ups spliced.

The server takes a prompt as tokens beside the messages. Its answer is read on its way to the
client, so that a follow-up can continue from the tokens.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.types import Message as AsgiMessage
from starlette.types import Send

from caesura.runtime.server.api.chat_request import ChatRequest, parse, records_of
from caesura.runtime.server.api.delegation import Delegation
from caesura.runtime.server.http.connection import parsed
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.keys.sender import Sender, sender_of
from caesura.runtime.server.load.metrics import Metrics
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.vllm_server import ServerSplicing

DONE = b"data: [DONE]"
KNOWN = frozenset({"role", "content", "tool_calls", "tool_call_id"})
"""Fields of a message that are put into the engine's form; others stay as they came."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request whose prompt depends on nothing but these messages and this spec."""

    messages: tuple[Message, ...]
    spec: SessionSpec
    sampling: Sampling


class SplicedChat:
    """Lets vLLM answer chat completions, from the tokens of earlier answers where it can."""

    def __init__(
        self, model: str, delegation: Delegation, splicing: ServerSplicing, metrics: Metrics
    ) -> None:
        self._model = model
        self._delegation = delegation
        self._splicing = splicing
        self._metrics = metrics

    async def answer(self, request: Request, given: Mapping[str, Any], send: Send) -> None:
        """Answer a request whose body holds the fields `given`. Raises `ApiError` 429.

        A first turn is read behind its answer only, so that its first token waits for nothing.
        """
        read = partial(self._read, given=given, sender=sender_of(request))
        body = await request.body()
        follows = _follows_answer(given)
        asked = await parsed(read, body) if follows else None
        if follows and asked is None:
            await self._delegation.answer(request, send)
            return
        spliced = None if asked is None else await self._spliced(asked, given)
        with self._splicing.tapped() as tap:

            async def remember(answer: Message) -> None:
                known = asked or await parsed(read, body)
                if known is not None and tap.requests == 1:
                    messages = (*known.messages, answer)
                    await self._splicing.remember(messages, known.spec, tap.tokens)

            await self._delegation.answer(request, _Reading(send, remember).send, spliced)

    def _read(self, body: bytes, given: Mapping[str, Any], sender: Sender) -> Conversation | None:
        """Return the conversation, or None if other fields may shape the prompt or the answer."""
        try:
            asked = parse(body)
        except ApiError:
            return None  # vLLM's server may know what this one does not, or say what is wrong
        one = asked.n in (None, 1) and asked.parallel_tool_calls is not False
        # A field that is unknown here may be one of a newer vLLM, and shape the prompt.
        if (
            not one
            or asked.left_out()
            or asked.continue_final_message
            or asked.model != self._model
        ):
            return None
        return _conversation(asked, given, sender)

    async def _spliced(self, asked: Conversation, given: Mapping[str, Any]) -> bytes | None:
        """Return the body with the prompt's tokens, or None to leave the request as it is."""
        found = await self._splicing.follow_up(asked.messages, asked.spec, asked.sampling)
        if found is None:
            return None
        self._metrics.count_follow_up(found.report)
        if found.tokens is None:
            return None
        prompt = {"kv_transfer_params": {"prompt_token_ids": found.tokens}}
        return json.dumps({**given, **prompt}).encode()


class _Reading:
    """Passes an answer on to its client; its message is taken before the last part is sent."""

    def __init__(self, send: Send, take: Callable[[Message], Awaitable[None]]) -> None:
        self._send = send
        self._take = take
        self._parts: list[bytes] = []
        self._streams = self._succeeds = False

    async def send(self, message: AsgiMessage) -> None:
        """Send one ASGI message on."""
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message["headers"]}
            self._streams = headers.get(b"content-type", b"").startswith(b"text/event-stream")
            self._succeeds = message["status"] == 200
        elif message["type"] == "http.response.body" and self._succeeds:
            part = message.get("body", b"")
            self._parts.append(part)
            ends = part.startswith(DONE) if self._streams else not message.get("more_body", False)
            if ends:
                self._succeeds = False
                read = streamed_answer if self._streams else whole_answer
                answer = await parsed(read, b"".join(self._parts))
                if answer is not None:
                    await self._take(answer)
        await self._send(message)


def _follows_answer(given: Mapping[str, Any]) -> bool:
    """Return whether a body may hold an answer of the model, from which its prompt continues."""
    messages = given.get("messages")
    return isinstance(messages, list) and any(
        isinstance(message, dict) and message.get("role") == "assistant" for message in messages
    )


def _conversation(asked: ChatRequest, given: Mapping[str, Any], sender: Sender) -> Conversation:
    records = records_of(asked.messages)
    messages = [
        {**{name: value for name, value in sent.items() if name not in KNOWN and value}, **record}
        for sent, record in zip(given["messages"], records, strict=True)
    ]
    spec = SessionSpec(
        tools=given.get("tools") or (),
        pausing=False,
        tool_choice="none" if asked.tool_choice == "none" else "auto",
        template=asked.template(),
        cache_salt=asked.cache_salt,
        owner=sender.of_user(asked.user).owner,
    )
    return Conversation(tuple(messages), spec, asked.sampling())


def whole_answer(body: bytes) -> Message | None:
    """Return the message of a whole completion, or None if a follow-up cannot continue it."""
    choices: list[Any] = json.loads(body).get("choices") or []
    continues = len(choices) == 1 and _continues(choices[0])
    return choices[0]["message"] if continues else None


def streamed_answer(body: bytes) -> Message | None:
    """Return the message of a streamed completion, or None if a follow-up cannot continue it."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: list[dict[str, Any]] = []
    last: Mapping[str, Any] = {}
    for line in body.split(b"\n"):
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:]).get("choices") or ():
            last = choice if choice.get("finish_reason") else last
            delta = choice.get("delta") or {}
            for name in ("content", "reasoning", "reasoning_content"):
                if delta.get(name):
                    message[name] = message.get(name, "") + delta[name]
            _add_calls(calls, delta.get("tool_calls") or ())
    if calls:
        message["tool_calls"] = calls
    return message if _continues(last) else None


def _add_calls(calls: list[dict[str, Any]], pieces: Sequence[Mapping[str, Any]]) -> None:
    for piece in pieces:
        while len(calls) <= piece["index"]:
            calls.append({"id": None, "type": "function", "function": {"arguments": ""}})
        call, function = calls[piece["index"]], piece.get("function") or {}
        call["id"] = piece.get("id") or call["id"]
        call["function"]["arguments"] += function.get("arguments") or ""
        if function.get("name"):
            call["function"]["name"] = function["name"]


def _continues(choice: Mapping[str, Any]) -> bool:
    """Return whether a choice ended by itself; the tokens before a stop text hold that text."""
    ended = choice.get("finish_reason") in ("stop", "length", "tool_calls")
    return ended and not isinstance(choice.get("stop_reason"), str)
