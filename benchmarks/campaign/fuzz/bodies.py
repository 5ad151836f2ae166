"""HTTP bodies: to a real application over a scripted engine, called without a socket."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from caesura.runtime.server import create_app
from caesura.runtime.server.api.chat_request import ChatRequest
from caesura.runtime.server.api.messages_request import MessagesRequest
from caesura.runtime.server.app import Application
from caesura.runtime.server.responses.schema import ResponseRequest
from caesura.runtime.testing import ScriptedEngine, ScriptedSession, call
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.scheduler.session_log import SessionLog
from caesura.tools.registry import Registry
from caesura.tools.tool import tool

from .prepared import Preparation
from .values import mutated, of_schema

MODEL = "tiny"
HANG_SECONDS = 60.0
"""An answer that takes longer hangs: none of these takes a second on an idle machine."""
MOST_BYTES = 2**20


class LenientJson(GenerateJsonSchema):
    """Writes an empty schema, which anything fits, for a field that has a validator alone."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        """Return the schema of anything."""
        return {}


FUNCTION = {
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}
HELLO = {"role": "user", "content": "Hello"}
CHAT: list[dict[str, Any]] = [
    {"model": MODEL, "messages": [HELLO], "temperature": 0.5, "max_tokens": 20, "stop": ["x"]},
    {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            HELLO,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "auto",
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    {"model": MODEL, "messages": [HELLO], "server_tools": ["double"], "n": 2, "logprobs": True},
    {
        "model": MODEL,
        "messages": [HELLO],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {"type": "object"}, "strict": True},
        },
        "top_k": 5,
        "top_p": 0.9,
        "seed": 7,
        "logit_bias": {"5": 1},
        "chat_template_kwargs": {"a": 1},
    },
]
MESSAGES: list[dict[str, Any]] = [
    {"model": MODEL, "max_tokens": 20, "messages": [HELLO], "system": "Be brief."},
    {
        "model": MODEL,
        "max_tokens": 20,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "x"}}
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}],
            },
        ],
        "tools": [{"name": "weather", "input_schema": FUNCTION["parameters"]}],
        "tool_choice": {"type": "any"},
        "stream": True,
        "stop_sequences": ["x"],
    },
]
RESPONSES: list[dict[str, Any]] = [
    {"model": MODEL, "input": "Hello", "instructions": "Be brief.", "max_output_tokens": 20},
    {
        "model": MODEL,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "sunny"},
        ],
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": "required",
        "stream": True,
        "metadata": {"a": "b"},
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
        "reasoning": {"effort": "low"},
        "truncation": "auto",
        "store": False,
    },
    {"model": MODEL, "input": "Hello", "background": True, "store": True},
]
OTHER: list[dict[str, Any]] = [
    {"items": [{"type": "message", "role": "user", "content": "Hi"}], "metadata": {"a": "b"}},
    {"model": MODEL, "input": "Hello"},
]
ROUTES: dict[str, Sequence[dict[str, Any]]] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSES,
    "/v1/responses/input_tokens": OTHER,
    "/v1/responses/compact": OTHER,
    "/v1/conversations": OTHER,
}
SCHEMAS = {
    path: model.model_json_schema(schema_generator=LenientJson)
    for path, model in (
        ("/v1/chat/completions", ChatRequest),
        ("/v1/messages", MessagesRequest),
        ("/v1/responses", ResponseRequest),
    )
}


@dataclass(frozen=True, slots=True)
class Body:
    """One request, and how it was made."""

    path: str
    data: bytes


def body(rng: Random) -> Body:
    """Make a request: by schema, or a valid one with changes, also in its bytes."""
    path = rng.choice([*ROUTES, *SCHEMAS, *SCHEMAS])
    if path in SCHEMAS and rng.random() < 0.4:
        made = of_schema(SCHEMAS[path], rng)
        if isinstance(made, dict) and rng.random() < 0.8:
            made["model"] = MODEL  # else most are refused for their model alone
    else:
        # Half of them change one thing alone, so that more of them reach the engine.
        made = mutated(rng.choice(ROUTES[path]), rng, rng.choice([1, 3]))
    try:
        data = json.dumps(made, ensure_ascii=rng.random() < 0.7).encode(errors="surrogatepass")
    except (ValueError, RecursionError):
        data = b'{"model": 1' + b"0" * 5000 + b"}"  # a number that Python does not write
    if rng.random() < 0.1:
        data = _with_broken_bytes(data, rng)
    return Body(path, data[:MOST_BYTES])


def _with_broken_bytes(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(changed) + 1)
        changed[place : place + rng.randrange(3)] = rng.choice(
            [b"", b"\xff", b"\0", b'"', b"}", b"[", b"\xef\xbb\xbf", b"NaN", b"\\ud800", b"e9999"]
        )
    return bytes(changed)


prepared = cache(Preparation)


class ObligingSession(ScriptedSession):
    """Prepares each turn for a real engine, and then plays its script.

    It ignores which calls a turn must hold, which its script does not know.
    """

    preparation: Preparation

    async def turn(self, messages: Any, sampling: Sampling | None = None) -> Any:
        """Play the next item."""
        self.preparation.check(self.spec, [*self.messages, *messages], sampling)
        rules = None if sampling is None else replace(sampling, calls=None)
        async for event in super().turn(messages, rules):
            yield event


class ObligingEngine(ScriptedEngine):
    """Answers, or calls a tool at random."""

    def __init__(self, rng: Random) -> None:
        """Answer by chance."""
        self.rng, self.preparation = rng, prepared()
        super().__init__(self._item, model=MODEL)

    def _item(self, messages: Sequence[Any], tools: Sequence[Any]) -> Any:
        if tools and messages[-1].get("role") != "tool" and self.rng.random() < 0.5:
            name = self.rng.choice(list(tools))["function"]["name"]
            return call(name, number=self.rng.randrange(9))
        return "It is sunny."

    def open(self, spec: SessionSpec, log: SessionLog | None = None) -> ScriptedSession:
        """Return a session that does what it is asked."""
        self.sessions = [each for each in self.sessions if not each.closed]
        reader = self._scripts[0]
        session = ObligingSession(self, spec, reader, len(self.sessions) + 1)
        session.preparation = self.preparation
        if spec.tool_choice == "none":
            session.spec = replace(spec, tools=())
        self.sessions.append(session)
        return session


@tool
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


class Tracebacks(logging.Handler):
    """Keeps the exceptions that anybody logs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an exception's traceback, or an error that is told without one."""
        if record.exc_info or record.levelno >= logging.ERROR:
            self.seen.append(logging.Formatter().format(record)[-2000:])


@dataclass
class Served:
    """An application, and what it has answered."""

    app: Application
    engine: ObligingEngine
    tracebacks: Tracebacks

    async def ask(self, request: Body) -> tuple[int, bytes]:
        """Send a request; returns the status and the body. Raises `TimeoutError` if it hangs."""
        given = [{"type": "http.request", "body": request.data, "more_body": False}]
        got = bytearray()
        status = 0
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if given:
                return given.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            got.extend(message.get("body", b""))

        async with asyncio.timeout(HANG_SECONDS):
            await self.app(_scope(request), receive, send)
        return status, bytes(got)


def _scope(request: Body) -> dict[str, Any]:
    headers = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(request.data)).encode()),
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }


@asynccontextmanager
async def served(rng: Random) -> AsyncIterator[Served]:
    """Serve an application; afterwards nothing may be under way."""
    engine, tracebacks = ObligingEngine(rng), Tracebacks()
    logging.getLogger().addHandler(tracebacks)
    app = create_app(engine, Registry([double]))
    await app.start()
    try:
        yield Served(app, engine, tracebacks)
    finally:
        await app.leave()
        await app.close()
        logging.getLogger().removeHandler(tracebacks)


def fault_of(status: int, answer: bytes, tracebacks: list[str]) -> str | None:
    """Return what is wrong with an answer, or None: it must be a success or a clear 4xx."""
    if tracebacks:
        return f"status {status}, and the log has:\n{tracebacks[0]}"
    if not 200 <= status < 500:
        return f"status {status}: {answer[:300]!r}"
    if status >= 400 and b'"message":' not in answer.replace(b": ", b":"):
        return f"status {status} without a message: {answer[:300]!r}"
    if b'"server_error"' in answer or b"internal error" in answer:
        return f"an internal error in an answer of status {status}: {answer[-300:]!r}"
    return None
