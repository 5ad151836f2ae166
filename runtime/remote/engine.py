"""`RemoteEngine`: an `Engine` that is a server elsewhere."""

import math
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, urlsplit

from caesura.intercept.calls.events import Event, TurnEnded
from caesura.runtime.engine import NoBackend
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.remote import chat, responses
from caesura.runtime.remote.heard import Heard
from caesura.runtime.remote.log import LoggedEvents, RemoteLog
from caesura.runtime.remote.responses import ResponseReader
from caesura.runtime.remote.server import Connection, Refused, Server, error_of
from caesura.runtime.run.fold import Transcript
from caesura.scheduler.histories import Histories, History
from caesura.scheduler.messages import InputGrammar, MediaRules, Message, Sampling, SessionSpec
from caesura.scheduler.programs import PARENT, SESSION, SESSION_FINAL, Origin
from caesura.scheduler.revival import Revival
from caesura.scheduler.session_log import SessionLog

OWNER = "caesura"
"""The owner of a model as `caesura serve` tells it."""
UNKNOWN_WINDOW = 32768
"""The context window of a model whose server tells none. The server refuses what is too long."""
BYTES_PER_TOKEN = 3
"""Of text, for counts that nobody was asked for; models of 2026 have 3 to 5."""
MEDIA = MediaRules({"image": 99, "audio": 99})
"""All that the protocols can carry; a server refuses what its model does not take."""


class RemoteEngine:
    """A model on a server: `caesura serve`, or another with OpenAI's chat completions.

        agent = Agent(RemoteEngine("http://host:8000/v1", model="Qwen/Qwen3-8B"), tools=[price])

    Tools run in this process. `caesura serve` keeps the KV cache between a call and its result as
    it does for an agent in its own process. A turn whose connection breaks is read on where it was
    (`/v1/responses` with `starting_after`), so that nothing is decoded twice. Another server is
    sent the whole history each turn, and a turn that breaks within its answer fails.

    Without `model` the server's first model is used. `api_key` is sent as a bearer token. Requests
    are tried again for `patience` seconds while the server is away or overloaded. All event loops
    and threads of a process may share an engine. Token counts of texts are estimates.

    Raises `UsageError` for a `url` that is not one of HTTP.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        patience: float = 60.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UsageError(
                f"the address of a server must be like http://host:8000/v1, got {url!r}"
            )
        base = url.rstrip("/")
        self._server = Server(base if parts.path.strip("/") else f"{base}/v1", api_key, patience)
        self._model = model
        self._window = UNKNOWN_WINDOW
        self._names: tuple[str, ...] = ()
        self._is_ours: bool | None = None
        self._closed = False
        self.revival = Revival(lambda: not self._closed)

    @property
    def url(self) -> str:
        """The address of the server's interface."""
        return self._server.url

    @property
    def is_caesura(self) -> bool | None:
        """Whether the server is `caesura serve`; None before the first contact."""
        return self._is_ours

    @property
    def model(self) -> str:
        """The model's name, which is empty before the first contact if none was given."""
        return self._model or ""

    @property
    def names(self) -> Sequence[str]:
        """The model's name alone: no one asks for the model through this engine."""
        return (self.model,)

    @property
    def adapters(self) -> Collection[str]:
        """The other names that the server lists; empty before the first contact."""
        return tuple(name for name in self._names if name != self._model)

    @property
    def context_tokens(self) -> int:
        """The context window in tokens, as far as the server tells it."""
        return self._window

    @property
    def default_sampling(self) -> Sampling:
        """No settings: those of the server hold where a request has none."""
        return Sampling()

    @property
    def max_answer_tokens(self) -> int | None:
        """None: the server bounds its answers itself."""
        return None

    @property
    def media_rules(self) -> MediaRules:
        """Pictures and sounds; the server refuses those that its model does not take."""
        return MEDIA

    def check_input(self, grammar: InputGrammar) -> None:
        """Raise `UsageError`: no field of the protocols has such a grammar."""
        raise UsageError(
            f"{self.url} cannot make the text of a call follow the grammar {grammar.definition!r}:"
            " use an engine of this process"
        )

    def count_tokens(self, text: str) -> int:
        """Return an estimate: no protocol counts without a request."""
        return math.ceil(len(text.encode(errors="replace")) / BYTES_PER_TOKEN)

    async def count_prompt(self, spec: SessionSpec, messages: Sequence[Message]) -> int:
        """Return the tokens of a prompt: as `caesura serve` counts them, else an estimate."""
        await self.contact()
        if not self._is_ours:
            tools = "".join(map(str, spec.tools))
            return self.count_tokens(tools + "".join(map(str, messages)))
        body = responses.body_of(spec, Sampling(), self.model, messages, None)
        asked = {name: body[name] for name in ("model", "input", "tools") if name in body}
        found = await self._asked("POST", f"{self.url}/responses/input_tokens", body=asked)
        return int(found["input_tokens"])

    async def contact(self) -> None:
        """Ask the server for its models, once.

        Raises `UsageError` for a model that it does not have, and for a wrong key. Raises
        `EngineFailed` for a server that cannot be reached.
        """
        if self._is_ours is not None:
            return
        found = await self._asked("GET", f"{self.url}/models")
        listed = [each for each in found.get("data") or () if isinstance(each, dict)]
        names = tuple(str(each["id"]) for each in listed if "id" in each)
        if not names:
            raise UsageError(f"{self.url} lists no models: is it the address of an API, up to /v1?")
        if self._model is not None and self._model not in names:
            raise UsageError(
                f"{self.url} has no model {self._model!r}: it has {', '.join(names[:10])}"
            )
        self._model = self._model or names[0]
        about = listed[names.index(self._model)]
        self._window = _window(about) or UNKNOWN_WINDOW
        self._names = names
        self._is_ours = await self._is_served_by_ours(self._model)

    async def _is_served_by_ours(self, model: str) -> bool:
        """Return whether `caesura serve` tells of the model; vLLM's part of it tells the list."""
        try:
            about = await self._answered("GET", f"{self.url}/models/{quote(model)}")
        except Refused:
            return False
        return about.get("owned_by") == OWNER

    def open(self, spec: SessionSpec, log: SessionLog | None = None) -> "RemoteSession":
        """Return a new session, whose log holds events and the server's responses, not tokens.

        A turn that did not end goes on where it is if the server still has it. Otherwise it ends
        behind the calls that it has made, or is decoded anew if it has made none.
        """
        return RemoteSession(self, self._server, spec, log)

    async def history(self, messages: Sequence[Message], spec: SessionSpec) -> History:
        """Return what messages tell a model whose template reads all fields, as digests."""
        return Histories().of(messages, spec)

    async def end_session(self, origin: Origin) -> None:
        """Tell `caesura serve` that a session's last request was answered; the tenant is the key's.

        Another server keeps nothing by sessions.
        """
        await self.contact()
        if self._is_ours:
            headers = _headers(origin) | {SESSION_FINAL: "true"}
            await self._asked("GET", f"{self.url}/models", headers=headers)

    async def check_health(self) -> None:
        """Raise `EngineFailed` if the server cannot be reached."""
        if self._closed:
            raise EngineFailed("the remote engine is closed")
        await self._asked("GET", f"{self.url}/models")

    async def restart(self) -> None:
        """Raise `EngineFailed`: the server is not ours to start."""
        raise EngineFailed(f"{self.url} is on another machine: start it there")

    async def revived(self, error: EngineFailed) -> None:
        """Raise `error`: requests are tried again by themselves."""
        raise error

    async def close(self) -> None:
        """Refuse further turns. Idempotent."""
        self._closed = True

    @property
    def closed(self) -> bool:
        """Whether the engine was closed."""
        return self._closed

    @property
    def backend(self) -> NoBackend:
        """It has none here: its operator sees it at the server."""
        return NoBackend(self.model, type(self).__name__)

    async def _asked(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        """Return a server's answer; raise the error of ours that its refusal means."""
        try:
            return await self._answered(method, url, **more)
        except Refused as refused:
            raise error_of(refused, self._server) from None

    async def _answered(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return a server's answer, over a connection of its own. Raises `Refused`."""
        connection = Connection(self._server, headers)
        try:
            return await connection.ask(method, url, body)
        finally:
            await connection.close()

    def __repr__(self) -> str:
        return f"<RemoteEngine {self.model or 'the first model'} at {self.url}>"


class RemoteSession:
    """One conversation with a server, which is sent only what is new where it keeps the rest."""

    def __init__(
        self,
        engine: RemoteEngine,
        server: Server,
        spec: SessionSpec,
        log: SessionLog | None = None,
    ) -> None:
        self._log = RemoteLog(log)
        self._engine = engine
        self._server = server
        self._spec = spec
        self._connection = Connection(server, _headers(spec.origin))
        self._messages: list[Message] = []
        self._taken: set[str] = set()
        """The ids of all calls so far."""
        self._turns = 0
        self._context = 0
        """The tokens of the conversation, as the server counted them."""
        self._previous: str | None = None
        """The response that the next one continues."""
        self._closed = False

    @property
    def context_tokens(self) -> int:
        """The tokens of the context, as the server counted them."""
        return self._context

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Send messages and yield the events of the turn; see `EngineSession.turn`."""
        if self._closed or self._engine.closed:
            raise EngineFailed("this session is closed")
        await self._engine.contact()
        self._turns += 1
        self._messages += messages
        logged = self._log.begin()
        self._previous = logged.previous or self._previous
        try:
            async with aclosing(self._turn(messages, sampling, logged)) as events:
                async for event in events:
                    self._log.write(event)
                    yield event
        except Refused as refused:
            raise error_of(refused, self._server) from None

    async def _turn(
        self, messages: Sequence[Message], sampling: Sampling | None, logged: LoggedEvents
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a turn: those of the log, if it ends there, else the server's."""
        heard = Heard(self._turns, self._taken)
        begun = logged.response if await self._is_kept(logged) else None
        if logged.is_whole or (logged.calls and begun is None):
            events = logged.replayed(self._taken)
            self._previous = logged.response if logged.is_whole else None  # which lacks this turn
        elif self._engine.is_caesura:
            events = self._by_responses(messages, sampling or self._spec.sampling, heard, begun)
        else:
            events = self._by_chat(sampling or self._spec.sampling, heard)
        told = Transcript()
        async with aclosing(events):
            async for event in events:
                told.take(event)
                if isinstance(event, TurnEnded):
                    is_old = logged.is_whole or heard.is_empty
                    self._messages.append(told.messages[0] if is_old else heard.message)
                    self._context += event.prompt_tokens + event.completion_tokens
                yield event

    def hold(self) -> None:
        """Do nothing: no protocol tells a server that more messages will come."""

    async def cut(self, tokens: int) -> bool:
        """Return False: the turn ends by itself."""
        return False

    async def remember(self, answer: Sequence[Message]) -> None:
        """Do nothing: the server remembers its answers by itself."""

    async def expect_pause(self, seconds: float) -> None:
        """Do nothing: no protocol tells a server how long a call will last."""

    async def close(self, *, follow_up: bool = False) -> None:
        """Close the connections. Idempotent."""
        self._closed = True
        await self._connection.close()

    async def _is_kept(self, logged: LoggedEvents) -> bool:
        """Whether the server has the response that an earlier process began, and goes on with it.

        One that was cancelled is as good as lost.
        """
        if logged.response is None or logged.is_whole or not self._engine.is_caesura:
            return False
        try:
            url = f"{self._server.url}/responses/{logged.response}"
            found = await self._connection.ask("GET", url)
        except Refused:
            return False
        return found.get("status") not in ("cancelled", "failed")

    async def _by_chat(self, sampling: Sampling, heard: Heard) -> AsyncGenerator[Event, None]:
        body = chat.body_of(self._spec, sampling, self._engine.model, self._messages)
        turn = chat.turn(self._connection, self._server, body, heard, self._context)
        async with aclosing(turn) as events:
            async for event in events:
                yield event

    async def _by_responses(
        self, messages: Sequence[Message], sampling: Sampling, heard: Heard, begun: str | None
    ) -> AsyncGenerator[Event, None]:
        """Continue the response before; where the server has lost it, send the whole history.

        A response that an earlier process has `begun` is read from its begin.
        """
        reader = ResponseReader(heard, begun)
        messages = self._messages if self._previous is None else messages
        try:
            async for event in self._continued(messages, self._previous, sampling, reader):
                yield event
        except Refused as refused:
            if refused.code != responses.LOST or self._previous is None:
                raise
            async for event in self._continued(self._messages, None, sampling, reader):
                yield event
        self._previous = reader.id
        for event in heard.end(reader.cut, reader.tokens, self._context):
            yield event

    async def _continued(
        self,
        messages: Sequence[Message],
        previous: str | None,
        sampling: Sampling,
        reader: ResponseReader,
    ) -> AsyncGenerator[Event, None]:
        model = self._engine.model
        body = responses.body_of(self._spec, sampling, model, messages, previous)
        turn = responses.turn(self._connection, self._server, body, reader)
        async with aclosing(turn) as events:
            async for event in events:
                self._log.responds(reader.id)
                yield event


def _headers(origin: Origin) -> dict[str, str]:
    told = {SESSION: origin.session, PARENT: origin.parent}
    return {name: value for name, value in told.items() if value}


def _window(about: dict[str, Any]) -> int | None:
    """Return the context window that a list of models tells, by the names of several servers."""
    meta = about.get("meta")
    for found in (
        about.get("max_model_len"),  # vLLM, SGLang, caesura serve
        about.get("context_length"),
        meta.get("n_ctx") or meta.get("n_ctx_train") if isinstance(meta, dict) else None,
    ):
        if isinstance(found, int) and found > 0:
            return found
    return None
