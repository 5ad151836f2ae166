"""Requests that vLLM's own server answers, within bounds that keep the event loop free.

vLLM's server parses a body and renders its messages in the event loop, in which all other
requests stream. It answers a text with half a character with status 500. Its errors get the form
and the codes of ours.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from caesura.runtime.errors import EngineFailed
from caesura.runtime.run.context import RunTrace
from caesura.runtime.run.media import with_words
from caesura.runtime.server.api.context_management import CLEAR_THINKING
from caesura.runtime.server.api.fields import MAX_BAD_WORDS, MAX_MESSAGES, MAX_STOPS, MAX_TOOLS
from caesura.runtime.server.api.vllm_turn import VllmTurn, asked_messages
from caesura.runtime.server.http.connection import ToldOfLeaving, parsed, parsed_once, sends_json
from caesura.runtime.server.http.errors import NO_THREADS, ApiError, invalid, speaks_anthropic
from caesura.runtime.server.http.exchange import note_answer
from caesura.runtime.server.http.foreign import OwnErrors
from caesura.runtime.server.http.lineage import GATEWAY, named_in, user_in
from caesura.runtime.server.keys.key import salted
from caesura.runtime.server.keys.sender import Sender, sender_of, with_origin
from caesura.runtime.server.load.gate import unavailable
from caesura.runtime.server.load.state import State
from caesura.runtime.tracing.who import RunIds
from caesura.runtime.trajectories.kept import KeptSessions
from caesura.runtime.trajectories.media import media_in
from caesura.runtime.trajectories.recorded import TappedTurn, record_tapped
from caesura.scheduler.vllm_server import TokenTap, VllmServer

Side = Literal["ours", "vllm"]
Handler = Callable[[Request, Send], Awaitable[None]]
Spliced = Callable[[Request, Mapping[str, Any], Send], Awaitable[None]]
_READ = (b'"server_tools"', b'"allowed_tools"', b'"response_format"', b'"custom"', b'"async"')
"""What stands in each chat completion that may be ours."""
MAX_DEPTH = 200
"""The most brackets within each other in a body; parsers recurse."""
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
_NO_TEXT = frozenset({"url", "data", "image_url", "input_audio", "video_url", "file", "source"})
"""Fields that hold pictures and sounds, which become other numbers of tokens than text."""
_ADDRESSED = (b'url"', b"input_audio", b"\\u")
"""What a body with media holds; an escape may hide the name of a field."""
_GENERATE = ("/completions", "/messages")
"""How the paths of routes end that take `vllm_xargs` and generate."""
_MOST = {
    "messages": MAX_MESSAGES,
    "tools": MAX_TOOLS,
    "input": MAX_MESSAGES,
    "stop": MAX_STOPS,
    "stop_token_ids": MAX_BAD_WORDS,
    "bad_words": MAX_BAD_WORDS,
}
_LARGEST = 2**63
"""vLLM's messages hold integers of 64 bits."""
_ARGUMENTS = "arguments"
"""A field of calls with JSON in a text, which is read when the call is rendered."""


class Followed(NamedTuple):
    """A request that its caller follows: the tap of its tokens, and its turn."""

    tap: TokenTap
    turn: VllmTurn


class Delegation:
    """vLLM's application, behind the gate and behind the bounds."""

    def __init__(self, vllm: VllmServer, state: State) -> None:
        """Create it for the server on the engine of an application."""
        engine = state.engine
        self._vllm = vllm
        self._media = state.media
        self._keys_apart = state.door.is_apart
        self._rules = engine.media_rules
        self._app = OwnErrors(ToldOfLeaving(vllm.app), self._explained)
        self._state = state
        self._tells = state.tracing is not None or state.options.access_log != "off"
        self._tells = self._tells or state.sessions is not None
        self._engine = engine
        self._agents = state.agents
        self._readiness = state.readiness
        self._gate = state.gate
        self._context_tokens = engine.context_tokens
        self._max_characters = vllm.max_characters
        self._parses_alone = vllm.parses_alone
        self._keeps_budgets = vllm.keeps_budgets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let vLLM answer one request. Raises `ApiError` for a body beyond a bound."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        if sends_json(request):
            await self.fields_of(request)
        await self.answer(request, send)

    async def answered_by(
        self, request: Request, given: Mapping[str, Any], parse: Callable[[bytes], object]
    ) -> Side:
        """Return who answers a chat completion or a message with the fields `given`.

        What vLLM's server cannot do is ours: tools of the server, some tools that are allowed, or
        an agent as the model.
        A message is ours wherever `parse` takes it: vLLM's server would ignore the begin of an
        answer in it, and its follow-ups cannot be spliced. A chat completion is ours with a schema
        beside tools, for which vLLM allows no call, and with several choices whose tokens are
        recorded. Neither is ours where it names another model, such as an adapter that is still to
        be found, or where only vLLM reads the model's answers, or keeps a message's budget of
        thinking.

        Raises `ApiError` for a message's `thread`: vLLM would answer without the conversation in
        it. So it is for a message that is refused and whose context is managed.
        """
        if _asks_for_ours(given) or given.get("model") in (*self._agents,):
            return "ours"
        if speaks_anthropic(request.url.path):
            if given.get("thread") is not None:
                raise invalid("thread is not supported: send all messages.", "thread", NO_THREADS)
        elif not (_has_schema_beside_tools(given) or self._is_mixed(given)):
            return "vllm"
        named, engine = given.get("model"), self._engine
        if self._parses_alone or not (named in engine.names or named in engine.adapters):
            return "vllm"
        manages = _manages_context(given)
        if self._keeps_budgets and _has_budget(given) and not manages:
            return "vllm"
        try:
            await parsed_once(request, parse)
        except ApiError:
            if manages:
                raise
            return "vllm"
        return "ours"

    async def answer(
        self,
        request: Request,
        send: Send,
        body: bytes | None = None,
        followed: Followed | None = None,
    ) -> None:
        """Let vLLM answer a request whose body was parsed; `body` replaces its own, if given.

        A caller that has a tap of the request says so by `followed`, with the turn that it tells.

        Raises `ApiError` 429, 503 while the engine is started again, and `MediaRefused` for media
        that cannot be fetched.
        """
        if self._readiness is not None and self._readiness.not_ready is not None:
            raise unavailable(self._readiness.not_ready)
        if body is None:
            body = await request.body()
        given = await self.fields_of(request) if sends_json(request) else {}
        if GATEWAY in request.scope and self._is_recorded(request) and _is_several(given):
            raise invalid(
                f"A session's base URL records one answer to one prompt at {request.url.path}, and"
                " this request asks for several, by prompt, n, best_of or use_beam_search: send a"
                " request for each."
            )
        sender = sender_of(request).of_user(None, told=named_in(given))
        with self._gate.enter(sender), self._followed(sender, followed) as tap:
            turn = followed.turn if followed is not None else self.turn(request, given)
            if followed is None and tap is not None:
                send = turn.ending(send, tap)
            async with self._told(turn, tap, sender):
                body, sent = await self._with_media(request, body)
                if self._is_recorded(request):
                    turn.media = await media_in((sent or given).get("messages") or ())
                if request.url.path.endswith(_GENERATE):
                    body = await parsed(partial(with_origin, origin=sender.origin), body)
                await self._app(request.scope, Again(body, request.receive), send)

    def turn(self, request: Request, given: Mapping[str, Any]) -> VllmTurn:
        """Return the turn of a request with the fields `given`; its run begins when it is sent."""
        messages = asked_messages(given)
        record = None
        if self._state.sessions is not None and self._is_recorded(request):
            record = partial(self._recorded, self._state.sessions, request, given)
        return VllmTurn(partial(self._begun, request, given), messages, record)

    def _is_recorded(self, request: Request) -> bool:
        """Return whether the tokens of a request's answer are kept."""
        return self._state.sessions is not None and request.url.path.endswith(_GENERATE)

    def _is_mixed(self, given: Mapping[str, Any]) -> bool:
        """Return whether a request has several answers whose tokens must be known apart."""
        return self._state.sessions is not None and given.get("n") not in (None, 1)

    def _recorded(
        self,
        sessions: KeptSessions,
        request: Request,
        given: Mapping[str, Any],
        request_id: str,
        turn: TappedTurn,
    ) -> None:
        """Add a turn of vLLM's server to the trajectory of its session."""
        sender = sender_of(request).of_user(None, told=named_in(given))
        asked, engine = given.get("model"), self._engine
        model = asked if isinstance(asked, str) and asked in engine.adapters else engine.model
        session = sessions.of_run(sender.origin, _answer_of(request_id))
        several = turn._replace(is_several=_is_several(given))
        record_tapped(session.recorder, model, several)

    def _begun(
        self, request: Request, given: Mapping[str, Any], request_id: str
    ) -> RunTrace | None:
        """Note the id of an answer, and begin the span of its run, if there is tracing."""
        named = _answer_of(request_id)
        note_answer(request.scope, named)
        state = self._state
        if state.tracing is None:
            return None
        sender = sender_of(request).of_user(None, told=named_in(given))
        model = given.get("model")
        return state.tracing.run(
            model if isinstance(model, str) else self._engine.model,
            ids=RunIds(named, request_id),
            came_with=sender.trace,
            who=state.who(sender, user_in(given), named),
        )

    @asynccontextmanager
    async def _told(
        self, turn: VllmTurn, tap: TokenTap | None, sender: Sender
    ) -> AsyncIterator[None]:
        """Let a turn hear of its request while the context lasts, end it, and count its tokens."""
        if tap is None:
            yield
            return
        tap.listener = turn
        error: BaseException | None = None
        try:
            yield
            if tap.requests and tap.reason is None:
                error = await self._death()
        except BaseException as broken_off:
            error = broken_off
            raise
        finally:
            if self._gate.quotas:
                self._gate.quotas.spend(sender, len(tap.tokens))
            await asyncio.shield(turn.end(tap, error))

    async def _death(self) -> EngineFailed | None:
        """Return the error of an engine that is dead."""
        try:
            await self._engine.check_health()
        except EngineFailed as error:
            return error
        return None

    async def _explained(self, error: ApiError) -> ApiError:
        """Return the error of a request that ended with the engine; any other as it is.

        Caesura's sessions survive the engine. vLLM's requests do not, so their clients are told
        when to come back.
        """
        if await self._death() is not None and self._readiness is not None:
            return unavailable(self._readiness.after_death)
        return error

    @contextmanager
    def _followed(self, sender: Sender, followed: Followed | None) -> Iterator[TokenTap | None]:
        """Keep the caches of keys apart, and yield the tap of the request, if anybody needs one."""
        with ExitStack() as stack:
            if self._keys_apart and self._vllm.salted is not None:
                stack.enter_context(self._vllm.salted(partial(salted, sender.tenant)))
            tap = None if followed is None else followed.tap
            needed = bool(self._gate.quotas) or self._tells
            if tap is None and needed and self._vllm.tapped is not None:
                tap = stack.enter_context(self._vllm.tapped())
            yield tap

    async def _with_media(
        self, request: Request, body: bytes
    ) -> tuple[bytes, dict[str, Any] | None]:
        """Return the body with data URLs instead of addresses, if the model takes media.

        Its fields come with it, where they were read.

        So vLLM's server fetches nothing, and no address within the network can be asked. Media of
        tools' results that the model does not take become words, where vLLM would refuse them.
        """
        if not any(field in body for field in _ADDRESSED):
            return body, None
        own = body is await request.body()
        data = await (self.fields_of(request) if own else parsed(self._parsed, body))
        made = data
        if isinstance(messages := data.get("messages"), list):
            made = {**data, "messages": with_words(messages, self._rules)}
        if self._rules.limits:
            made = await self._media.inlined_json(made, self._rules)
        return (body if made == data else json.dumps(made).encode()), made

    async def fields_of(self, request: Request) -> dict[str, Any]:
        """Return the object in a body; raise `ApiError` if it is none, or beyond a bound."""
        return await parsed_once(request, self._parsed)

    def _parsed(self, body: bytes) -> dict[str, Any]:
        try:
            data = json.loads(body)
        except RecursionError:
            raise invalid("The body is nested too deeply: flatten it.") from None
        except ValueError as error:
            raise invalid(f"The body is not valid JSON: {error}.") from None
        if not isinstance(data, dict):
            raise invalid("The body must be a JSON object.")
        for name, most in _MOST.items():
            count = len(data[name]) if isinstance(data.get(name), list) else 0
            if count > most:
                raise invalid(f"{name} has {count} items, and at most {most} are taken.", name)
        halves = _HALF_CHARACTER.search(body) is not None
        characters = _characters(data, halves)
        most_characters = self._max_characters
        if most_characters is not None and characters > most_characters:
            raise invalid(
                f"This model's maximum context length is {self._context_tokens} tokens, which hold "
                f"{most_characters} characters at most, and this request has {characters}: "
                "shorten it.",
                "messages" if "messages" in data else None,
                "context_length_exceeded",
            )
        return data


class Delegated:
    """A route that vLLM's server answers or, where it cannot, our own handler.

    `spliced` lets vLLM continue from the tokens of earlier answers.
    """

    def __init__(
        self,
        delegation: Delegation,
        ours: Handler,
        parse: Callable[[bytes], object],
        spliced: Spliced | None = None,
    ) -> None:
        self._delegation = delegation
        self._ours = ours
        self._parse = parse
        self._spliced = spliced

    async def answer(self, request: Request, send: Send) -> None:
        """Answer one request. Raises `ApiError` for a body beyond a bound."""
        given = await self._delegation.fields_of(request)
        if await self._delegation.answered_by(request, given, self._parse) == "ours":
            await self._ours(request, send)
        elif self._spliced is not None:
            await self._spliced(request, given, send)
        else:
            await self._delegation.answer(request, send)


def _answer_of(request_id: str) -> str:
    """Return the id of the answer of one of the engine's requests.

    A completion may have several prompts, each with a request of its own.
    """
    return request_id.rpartition("-")[0] if request_id.startswith("cmpl-") else request_id


def _is_several(given: Mapping[str, Any]) -> bool:
    """Return whether vLLM's server would mix the tokens of several answers to a request."""
    prompt = given.get("prompt")
    prompts = isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)
    several = any(given.get(name) not in (None, 1) for name in ("n", "best_of"))
    return prompts or several or bool(given.get("use_beam_search"))


def may_be_ours(body: bytes, agents: Iterable[str] = ()) -> bool:
    """Return whether `answered_by` must read a chat completion; any other one is vLLM's."""
    names = (json.dumps(name).encode() for name in agents)
    return any(field in body for field in chain(_READ, names))


def _asks_for_ours(given: Mapping[str, Any]) -> bool:
    choice = given.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind in ("allowed_tools", "custom") or given.get("server_tools"):
        return True
    messages = given.get("messages")
    called = (
        call
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict) and isinstance(message.get("tool_calls"), list)
        for call in message["tool_calls"]
    )
    tools = given.get("tools")
    tools = tools if isinstance(tools, list) else ()
    return any(map(_is_custom, (*tools, *called))) or any(map(_is_async, tools))


def _is_async(tool: object) -> bool:
    """Return whether a client's tool is to run in the background, which is refused here."""
    function = tool.get("function") if isinstance(tool, dict) else None
    told = [each for each in (tool, function) if isinstance(each, dict)]
    return any(each.get("async") for each in told)


def _is_custom(each: object) -> bool:
    """Return whether a tool or a call is one of chat completions' custom tools."""
    return isinstance(each, dict) and each.get("type") == "custom" and "custom" in each


def _has_budget(given: Mapping[str, Any]) -> bool:
    """Return whether a message says how long the model may think."""
    thinking = given.get("thinking")
    return isinstance(thinking, dict) and thinking.get("budget_tokens") is not None


def _manages_context(given: Mapping[str, Any]) -> bool:
    """Return whether a message asks for what vLLM's server would leave undone without a word.

    That thinking is cleared is not among it: the chat template decides.
    """
    managed = given.get("context_management")
    edits = managed.get("edits") if isinstance(managed, dict) else managed
    kinds = [
        edit.get("type") if isinstance(edit, dict) else None
        for edit in (edits if isinstance(edits, list) else [edits])
        if edit is not None
    ]
    return given.get("compaction") is not None or any(kind != CLEAR_THINKING for kind in kinds)


def _has_schema_beside_tools(given: Mapping[str, Any]) -> bool:
    form, choice = given.get("response_format"), given.get("tool_choice") or "auto"
    formed = isinstance(form, dict) and form.get("type") != "text"
    return formed and bool(given.get("tools")) and choice == "auto"


class Again:
    """The `receive` of a request whose body was read: the body again, then what follows."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        """Return the next message of the request."""
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _characters(data: Mapping[str, Any], halves: bool) -> int:
    """Return the number of characters of the longest prompt in a body.

    A top-level list of texts, or of lists, is a batch: each item is a prompt of its own.
    Raises `ApiError` for half a character, for an integer beyond 64 bits, and for a value that is
    nested too deeply.
    """
    batches = {name: field for name, field in data.items() if _is_batch(field)}
    shared = {name: field for name, field in data.items() if name not in batches}
    each = (_text_characters(item, halves) for field in batches.values() for item in field)
    return _text_characters(shared, halves) + max(each, default=0)


def _is_batch(field: Any) -> bool:
    return isinstance(field, list) and all(isinstance(item, str | list) for item in field)


def _text_characters(value: Any, halves: bool) -> int:
    """Return the number of characters of all texts in a value."""
    found = 0
    left: list[tuple[Any, int]] = [(value, 0)]
    while left:
        item, depth = left.pop()
        if isinstance(item, str):
            found += len(item)
            if halves and _has_half(item):
                raise invalid("The body holds half a character, a lone surrogate: remove it.")
        elif depth > MAX_DEPTH:
            raise invalid(f"The body is nested more than {MAX_DEPTH} deep: flatten it.")
        elif isinstance(item, int):
            if not -_LARGEST <= item < _LARGEST:
                raise invalid("The body holds an integer of more than 64 bits: use a smaller one.")
        elif isinstance(item, dict):
            if halves and isinstance(item.get(_ARGUMENTS), str):
                _check_arguments(item[_ARGUMENTS])
            left.extend(
                (value, depth + 1)
                for key, value in item.items()
                if halves or key not in _NO_TEXT or not isinstance(value, str | dict)
            )
        elif isinstance(item, list):
            left.extend((each, depth + 1) for each in item)
    return found


def _has_half(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _check_arguments(text: str) -> None:
    """Raise `ApiError` for arguments, as JSON, that hold half a character."""
    try:
        whole = json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return  # a call may hold anything; the model is shown what it wrote
    if _has_half(whole):
        raise invalid("A call's arguments hold half a character, a lone surrogate: remove it.")
