"""The ASGI application: its routes, and the middlewares of every request."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from caesura.runtime.audit import AuditLog
from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.runtime.journal.record import Recorded
from caesura.runtime.journal.store import JournalStore
from caesura.runtime.journal.writer import JournalWriter
from caesura.runtime.recording.recorder import HttpLog, Recorder
from caesura.runtime.run.limits import bounded
from caesura.runtime.run.media import MediaFetcher
from caesura.runtime.run.served_agent import Agents
from caesura.runtime.server.about import about_routes, model_routes
from caesura.runtime.server.api import chat_request, messages_request
from caesura.runtime.server.api.chat import ChatCompletions
from caesura.runtime.server.api.chat_kept import KeptChats
from caesura.runtime.server.api.chat_spliced import SplicedChat
from caesura.runtime.server.api.delegation import Delegated, Delegation, Handler, Spliced
from caesura.runtime.server.api.messages import Messages
from caesura.runtime.server.api.people import people_routes
from caesura.runtime.server.files import artifact_routes, page_routes
from caesura.runtime.server.http.access_log import AccessLog
from caesura.runtime.server.http.connection import Connections, JsonOnly
from caesura.runtime.server.http.errors import MESSAGES, ApiError
from caesura.runtime.server.http.exchange import REQUEST_ID, Exchanges, Rules, noted_answer
from caesura.runtime.server.http.returning import Named
from caesura.runtime.server.http.stream import Streamed
from caesura.runtime.server.keys.access import Door
from caesura.runtime.server.keys.auditing import Auditing, ended
from caesura.runtime.server.keys.sender import sender_of
from caesura.runtime.server.load.gate import Gate, QueueBound, unavailable
from caesura.runtime.server.load.metrics import Metrics
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.server.load.state import State
from caesura.runtime.server.responses.conversations import conversation_routes
from caesura.runtime.server.responses.routes import response_routes
from caesura.runtime.server.responses.service import Responses
from caesura.runtime.server.responses.store import ResponseStore, SqliteResponses
from caesura.runtime.server.responses.websocket import socket_routes
from caesura.runtime.server.sessions import Gateway, GatewayDoor, session_routes
from caesura.runtime.server.trace import TRACE, Traces
from caesura.runtime.supervision import EngineMetrics, Readiness, Supervisor
from caesura.runtime.tracing.setup import tracing_of
from caesura.runtime.trajectories.kept import KeptSessions
from caesura.runtime.whatif.replays import Replays
from caesura.runtime.whatif.routes import whatif_routes
from caesura.scheduler.vllm_server import VllmServer
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.people import People
from caesura.tools.registry import Registry

if TYPE_CHECKING:
    from caesura.runtime.tracing.setup import Given

CHAT = "/v1/chat/completions"
_LEFT_WAITING = ApiError(
    503,
    "The server is shutting down, and this request waits for a person or a long tool: send it "
    "again. A question to a person is kept.",
    code="server_shutting_down",
    headers={"Retry-After": "1"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """What a server works with beside its engine and its tools; each part may be left out.

    The caller closes `people` and `recorder`.
    """

    vllm: VllmServer | None = None
    """vLLM's own application, which answers what this one does not."""
    supervisor: Supervisor | None = None
    """Starts the engine again when it dies."""
    queue: QueueBound | None = None
    """Bounds how long requests wait for the engine."""
    store: ResponseStore | None = None
    """Keeps responses; without one, they are kept in memory."""
    agents: Agents = field(default_factory=dict)
    """The agents that clients may name as their model."""
    journal: JournalStore | None = None
    """Keeps runs, which then survive this process."""
    people: People | None = None
    """Answers questions of tools, and approves calls."""
    sessions: KeptSessions | None = None
    """Keeps the trajectories of sessions; without it nothing is recorded."""
    artifacts: ArtifactStore | None = None
    """The files that tools made."""
    audit: AuditLog | None = None
    recorder: Recorder | None = None
    replays: Replays | None = None
    tracing: "Given" = None


class Runs(NamedTuple):
    """The runs that outlive their requests."""

    responses: Responses
    chats: KeptChats


class Application:
    """An ASGI application, with what must happen before its first and after its last request."""

    def __init__(
        self,
        state: State,
        traces: Traces,
        runs: Runs,
        router: Router,
        recorder: Recorder | None = None,
    ) -> None:
        self._state = state
        self._traces = traces
        self._responses, self._chats = runs
        self._router = router
        options, door = state.options, state.door
        self._connections = Connections(router, options.client_max_size, options.sockets)
        self.check_route = door.check_route
        """Raises `ApiError` 403 for a request whose key has too low a role."""
        self._following: asyncio.Task[None] | None = None
        self._log = None if recorder is None else HttpLog(recorder)
        rules = Rules(
            door.check,
            state.metrics.observe_request,
            self._log,
            self._told,
            door.who,
            None if options.access_log == "off" else AccessLog(options.access_log),
        )
        ending: ASGIApp = _SessionEnds(self._connections, state.engine)
        if state.sessions is None:
            self._app: ASGIApp = Exchanges(ending, rules)
        else:
            entered = Exchanges(GatewayDoor(ending), rules)
            self._app = Gateway(entered, state.sessions, door)
        if cors := options.allowed_origins:
            self._app = CORSMiddleware(
                self._app,
                allow_origins=cors,
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=[REQUEST_ID, TRACE],
            )
        if options.server_name is not None:
            self._app = Named(self._app, options.server_name)

    def _told(self, scope: Scope) -> Mapping[str, str]:
        """Return headers of an answer: what is left of limits, and where the page shows it."""
        return {**self._state.door.headers(scope), **self._traces.headers(noted_answer(scope))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or start and end with the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            scope["app"] = self  # the router then raises its errors instead of answering them
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.leave()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def start(self) -> None:
        """Load the items that wait for a person, and go on with runs that were broken off.

        Call it before the first request.
        """
        if self._state.people is not None:
            await self._state.people.start()
            if self._state.audit is not None:
                follows = self._state.audit.follow(self._state.people)
                self._following = asyncio.create_task(follows)
        self._responses.start()
        if self._state.journal is not None:
            self._state.journal.on_left_behind = self._go_on
            found = await self._state.journal.start()
            await self._responses.resume(found)
            await self._chats.resume(found)

    def _go_on(self, found: Sequence[Recorded]) -> None:
        self._responses.go_on(found)
        self._responses.runs.in_background(self._chats.resume(found))

    async def leave(self) -> None:
        """End the streams of watchers, and keep the questions of requests for the next process."""
        self._responses.is_leaving = True
        await self._traces.dismiss()
        if self._state.people is not None:
            await self._state.people.leave()

    async def close(self) -> None:
        """End the runs that no request waits for. Call it after the last request."""
        if self._state.replays is not None:
            await self._state.replays.cancel()
        await self._responses.aclose()
        await ended(self._following)
        await self._chats.leave()
        if self._state.journal is not None:
            readiness = self._state.readiness
            died = readiness is not None and readiness.dead is not None
            await self._state.journal.aclose(died=died)
        await self._state.media.aclose()
        if self._state.sessions is not None:
            self._state.sessions.close()
        if self._log is not None:
            self._log.flush()

    @property
    def options(self) -> ServerOptions:
        """The settings of this application."""
        return self._state.options

    @property
    def agents(self) -> Agents:
        """The agents that clients may name as their model."""
        return self._state.agents

    @property
    def metrics(self) -> Metrics:
        """The metrics of this application."""
        return self._state.metrics

    def has_route(self, scope: Scope) -> bool:
        """Return whether one of this application's own routes takes the request."""
        return any(route.matches(scope)[0] is Match.FULL for route in self._router.routes)

    @property
    def completions(self) -> int:
        """The number of completions under way."""
        return len(self._state.gate)

    def drain(self) -> None:
        """Take no more work, and say so to probes. What is under way goes on."""
        if self._state.readiness is not None:
            self._state.readiness.draining = True

    async def lose_engine(self, error: Exception) -> None:
        """Take no more work, and end the runs that wait for tools or people with `error`.

        Their open items are closed as cancelled, so that no later process runs their calls. Runs
        that a later process goes on with keep theirs.
        """
        self.drain()
        await self._state.runs.break_off(error)
        if self._state.people is not None:
            await self._state.people.leave()
        await self._responses.leave()
        await self._chats.leave()

    async def break_off_long(self, seconds: float) -> None:
        """End the runs that wait for people, or for tools that need more than `seconds`.

        A later process goes on with those that the journal keeps. The others get an error.

        Call it after `leave`, which keeps the open items.
        """
        people = self._state.people
        asked = {item.session for item in people.waited_for} if people is not None else set()
        await self._responses.leave(self._state.runs.long_journaled(asked, seconds))
        await self._state.runs.break_off_long(_LEFT_WAITING, asked, seconds)

    def cancel_all(self) -> None:
        """Cancel all requests under way, downloads and streams too."""
        self._connections.cancel_all()


class _SessionEnds:
    """Middleware that ends a session in the engine behind the answer to its last request."""

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and free what was kept for others of its session if it says so."""
        try:
            await self._app(scope, receive, send)
        finally:
            if (ended := sender_of(HTTPConnection(scope)).ended) is not None:
                # Shielded, since a request is cancelled whose client leaves.
                await asyncio.shield(self._engine.end_session(ended))


def create_app(
    engine: Engine,
    tools: Registry,
    options: ServerOptions | None = None,
    parts: ServerParts | None = None,
) -> Application:
    """Return an ASGI application that serves `engine` with OpenAI's and Anthropic's HTTP APIs.

    Clients name those of `tools` that the server runs. The caller closes the engine. Raises
    `UsageError` for options that are wrong.
    """
    parts = parts or ServerParts()
    state = _state(engine, tools, options or ServerOptions(), parts)
    seconds, public_url = state.options.keep_alive_seconds, state.options.public_url
    traces = Traces(parts.recorder, parts.artifacts, seconds, public_url)
    if state.tracing is not None and public_url:
        state.tracing.link = traces.address
    runs = Runs(Responses(state, parts.store or SqliteResponses(None)), KeptChats(state))
    return Application(state, traces, runs, _router(state, parts, runs, traces), parts.recorder)


def _state(engine: Engine, tools: Registry, options: ServerOptions, parts: ServerParts) -> State:
    door = Door(
        options.api_key,
        options.allowed_hosts,
        options.allowed_origins,
        options.shared_prefix_cache,
    )
    spans = tracing_of(parts.tracing, parts.recorder)
    if spans is not None:
        spans.watch(engine.backend)
    metrics = Metrics(None if spans is None else spans.exports, parts.recorder, tools.observed)
    if (queue := parts.queue) is not None:
        metrics.queue_seconds.set_function(lambda: queue.wait_seconds)
    check = partial(_check_draining, parts.supervisor)
    return State(
        engine=engine,
        tools=tools,
        options=options,
        limits=bounded(options.limits, engine.max_answer_tokens),
        agents=_checked(parts.agents, engine),
        metrics=metrics,
        gate=Gate(options.max_concurrent, metrics.in_flight, door.quotas, check, queue),
        door=door,
        media=MediaFetcher(allow_private=options.allow_private),
        people=parts.people,
        tracing=spans,
        replays=parts.replays,
        journal=None if parts.journal is None else JournalWriter(parts.journal),
        readiness=_readiness(parts.supervisor, metrics),
        audit=None if parts.audit is None else Auditing(parts.audit, door.names),
        sessions=parts.sessions,
    )


def _router(state: State, parts: ServerParts, runs: Runs, traces: Traces) -> Router:
    vllm, artifacts = parts.vllm, parts.artifacts
    delegation = Delegation(vllm, state) if vllm else None
    chat: Handler = ChatCompletions(state, runs.chats).answer
    own_messages = Messages(state)
    messages: Handler = own_messages.answer
    if vllm is not None and delegation is not None:
        spliced = _spliced(state, vllm, delegation)
        chat = Delegated(delegation, chat, chat_request.parse, spliced).answer
        messages = Delegated(delegation, messages, messages_request.parse).answer
    json_only = [Middleware(JsonOnly)]
    routes: list[BaseRoute] = [
        Route(CHAT, Streamed(chat), methods=["POST"], middleware=json_only),
        Route(MESSAGES, Streamed(messages), methods=["POST"], middleware=json_only),
        Route(
            f"{MESSAGES}/count_tokens", own_messages.count, methods=["POST"], middleware=json_only
        ),
        *response_routes(runs.responses, state),
        *socket_routes(runs.responses),
        *conversation_routes(runs.responses),
        *session_routes(state),
        *traces.routes(),
        *page_routes(),
    ]
    if vllm is None or not vllm.listens:
        routes += about_routes(state, delegation)
    elif state.agents:
        routes += model_routes(state, delegation)
    if artifacts is not None:
        routes += artifact_routes(artifacts, state.door)
    if state.people is not None:
        routes += people_routes(
            state.people, state.door, state.options.keep_alive_seconds, lambda: traces.recording
        )
    if state.replays is not None:
        routes += whatif_routes(state.replays)
    return Router(routes, redirect_slashes=False, default=delegation or _no_route)


def _checked(agents: Agents, engine: Engine) -> Agents:
    """Return the agents; raise `UsageError` for one with the name of a model."""
    for name in agents:
        if name in engine.names or name in engine.adapters:
            raise UsageError(
                f"the agent {name!r} has the name of the model or of an adapter: rename it, or give"
                " the model another --served-model-name"
            )
    return agents


def _spliced(state: State, vllm: VllmServer, delegation: Delegation) -> Spliced | None:
    if vllm.splicing is None:
        return None
    return SplicedChat(state.engine.names, delegation, vllm.splicing, state.metrics).answer


def _readiness(supervisor: Supervisor | None, metrics: Metrics) -> Readiness | None:
    """Return what a supervisor knows, if there is one, and show it among the metrics."""
    if supervisor is None:
        return None
    metrics.include(EngineMetrics(supervisor))
    return supervisor.readiness


def _check_draining(supervisor: Supervisor | None) -> None:
    """Raise `ApiError` 503 while the server finishes its work and takes no more."""
    why = None if supervisor is None else supervisor.readiness.not_ready
    if why is not None and why.status == "draining":
        raise unavailable(why)


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    raise ApiError(404, "There is no such route.", code="unknown_url")
