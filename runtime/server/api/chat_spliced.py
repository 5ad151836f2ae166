"""Chat completions that vLLM's own server answers, with follow-ups spliced.

The server takes a prompt as tokens beside the messages. Its answer is read on its way to the
client, so that a follow-up can continue from the tokens.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Message as AsgiMessage
from starlette.types import Send

from caesura.intercept.calls.events import FollowUpReport
from caesura.runtime.server.api.chat_request import HARMLESS, NEUTRAL, ChatRequest, records_of
from caesura.runtime.server.api.delegation import Delegation, Followed
from caesura.runtime.server.api.vllm_turn import DONE, VllmTurn
from caesura.runtime.server.http.connection import parsed
from caesura.runtime.server.keys.sender import Sender, sender_of
from caesura.runtime.server.load.metrics import Metrics
from caesura.scheduler.messages import CallRule, Message, Sampling, SessionSpec
from caesura.scheduler.vllm_server import ServerSplicing

KNOWN = frozenset({"role", "content", "tool_calls", "tool_call_id"})
"""Fields of a message that are put into the engine's form; others stay as they came."""
PROMPT_FREE = frozenset(
    {
        "allowed_token_ids",
        "include_stop_str_in_output",
        "length_penalty",
        "logprob_token_ids",
        "prompt_logprobs",
        "repetition_detection",
        "return_token_ids",
        "return_token_offsets",
        "return_tokens_as_token_ids",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stream_interval",
        "thinking_token_budget",
        "vllm_xargs",
        "watermarking",
    }
)
"""Fields that vLLM's server reads and ours does not, and that do not shape the prompt."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request whose prompt depends on nothing but these messages and this spec.

    `choices` is the number of answers that it asks for.
    """

    messages: tuple[Message, ...]
    spec: SessionSpec
    sampling: Sampling
    choices: int


class SplicedChat:
    """Lets vLLM answer chat completions, from the tokens of earlier answers where it can."""

    def __init__(
        self,
        names: Sequence[str],
        delegation: Delegation,
        splicing: ServerSplicing,
        metrics: Metrics,
    ) -> None:
        self._names = names
        self._delegation = delegation
        self._splicing = splicing
        self._metrics = metrics

    async def answer(self, request: Request, given: Mapping[str, Any], send: Send) -> None:
        """Answer a request whose body holds the fields `given`. Raises `ApiError` 429.

        A first turn is read behind its answer only, so that its first token waits for nothing,
        unless the chat template may not take its messages as they are.
        """
        read = partial(self._read, given=given, sender=sender_of(request))
        body = await request.body()
        follows = _follows_answer(given)
        asked = await parsed(read, body) if follows or self._splicing.rearranges else None
        turn = self._delegation.turn(request, given)
        spliced = None if asked is None else await self._spliced(body, asked, given, turn)
        with self._splicing.tapped() as tap:

            async def remember(answer: Message, continues: bool) -> None:
                turn.answer = answer
                known = asked or await parsed(read, body) if continues else None
                if isinstance(known, Conversation) and known.choices == tap.requests == 1:
                    await self._splicing.remember((*known.messages, answer), known.spec, tap)

            reading = _Reading(turn.ending(send, tap), remember)
            await self._delegation.answer(request, reading.send, spliced, Followed(tap, turn))

    def _read(
        self, body: bytes, given: Mapping[str, Any], sender: Sender
    ) -> Conversation | FollowUpReport | None:
        """Return the conversation, or why it is rendered: a field may shape the prompt otherwise.

        The result is None for a request that only vLLM's server understands or refuses.
        """
        try:
            asked = ChatRequest.model_validate_json(body)
        except ValidationError:
            return None
        shaping = next(filter(self._shapes_prompt, (asked.model_extra or {}).items()), None)
        if shaping is not None:
            return FollowUpReport("rendered", "parameter", field=shaping[0])
        if asked.continue_final_message or asked.add_generation_prompt is False:
            return FollowUpReport("rendered", "parameter", field="add_generation_prompt")
        if asked.model not in self._names:
            return FollowUpReport("rendered", "parameter", field="model")
        return _conversation(asked, given, sender)

    def _shapes_prompt(self, sent: tuple[str, Any]) -> bool:
        """Return whether a field that is not ours may shape the prompt of vLLM's server."""
        name, value = sent
        if name in HARMLESS or name in PROMPT_FREE or name not in self._splicing.fields:
            return False
        return value is not None and value not in NEUTRAL.get(name, ())

    async def _spliced(
        self,
        body: bytes,
        asked: Conversation | FollowUpReport,
        given: Mapping[str, Any],
        turn: VllmTurn,
    ) -> bytes | None:
        """Return the body with the prompt's tokens, or None to leave the request as it is.

        The tokens continue an answer, if the conversation follows one that is known. Or they are
        those of messages that vLLM's server would refuse, or lose in part. The `turn` is told how
        a follow-up became tokens.
        """
        follows = _follows_answer(given)
        if isinstance(asked, FollowUpReport):
            if follows:
                self._metrics.count_follow_up(asked)
                turn.follow_up = asked
            return None
        told = (asked.messages, asked.spec, asked.sampling)
        found = await self._splicing.follow_up(*told) if follows else None
        if found is not None:
            self._metrics.count_follow_up(found.report)
            turn.follow_up = found.report
        tokens: Sequence[int] | None = None if found is None else found.tokens
        if tokens is None and self._splicing.rearranges:
            tokens = await self._splicing.rearranged(*told)
        if tokens is None:
            return None
        prompt = {"kv_transfer_params": {"prompt_token_ids": tokens}}
        return await parsed(lambda _: json.dumps({**given, **prompt}).encode(), body)


class _Reading:
    """Passes an answer on to its client; its message is taken before the last part is sent."""

    def __init__(self, send: Send, take: Callable[[Message, bool], Awaitable[None]]) -> None:
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
                read = _streamed if self._streams else _whole
                answer, continues = await parsed(read, b"".join(self._parts))
                if answer is not None:
                    await self._take(answer, continues)
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
        {**{name: value for name, value in sent.items() if name not in KNOWN}, **record}
        for sent, record in zip(given["messages"], records, strict=True)
    ]
    sampling = asked.sampling()
    if asked.parallel_tool_calls is False:
        sampling = replace(sampling, calls=CallRule(single=True))
    spec = SessionSpec(
        tools=given.get("tools") or (),
        sampling=sampling,
        pausing=False,
        tool_choice="none" if asked.tool_choice == "none" else "auto",
        template=asked.template(),
        cache_salt=asked.cache_salt,
        owner=sender.of_user(asked.user).owner,
    )
    return Conversation(tuple(messages), spec, sampling, asked.n or 1)


def whole_answer(body: bytes) -> Message | None:
    """Return the message of a whole completion, or None if a follow-up cannot continue it."""
    message, continues = _whole(body)
    return message if continues else None


def streamed_answer(body: bytes) -> Message | None:
    """Return the message of a streamed completion, or None if a follow-up cannot continue it."""
    message, continues = _streamed(body)
    return message if continues else None


def _whole(body: bytes) -> tuple[Message | None, bool]:
    """Return the message of the only choice, and whether a follow-up can continue it."""
    choices: list[Any] = json.loads(body).get("choices") or []
    if len(choices) != 1:
        return None, False
    return choices[0]["message"], _continues(choices[0])


def _streamed(body: bytes) -> tuple[Message, bool]:
    """Return the message of a stream, and whether a follow-up can continue it."""
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
    return message, _continues(last)


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
