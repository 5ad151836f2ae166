"""The ASGI application: its routes, and the middlewares of every request."""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from caesura.runtime.audit import AuditLog
from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.runtime.journal.record import Recorded
from caesura.runtime.journal.store import JournalStore
from caesura.runtime.journal.writer import JournalWriter
from caesura.runtime.recording.recorder import HttpLog, Recorder
from caesura.runtime.run.limits import Limits, bounded
from caesura.runtime.run.media import MediaFetcher
from caesura.runtime.server.about import about_routes
from caesura.runtime.server.api.chat import ChatCompletions
from caesura.runtime.server.api.chat_kept import KeptChats
from caesura.runtime.server.api.delegation import Delegation
from caesura.runtime.server.api.messages import Messages
from caesura.runtime.server.api.people import people_routes
from caesura.runtime.server.files import artifact_routes, page_routes
from caesura.runtime.server.http.connection import Connections
from caesura.runtime.server.http.counting import Counted
from caesura.runtime.server.http.errors import MESSAGES, ApiError, Errors
from caesura.runtime.server.http.returning import Named
from caesura.runtime.server.http.sockets import SocketLimits
from caesura.runtime.server.http.stream import Streamed
from caesura.runtime.server.keys.access import Access, ApiKeys, Door, JsonOnly
from caesura.runtime.server.keys.auditing import Auditing, ended
from caesura.runtime.server.keys.quota import LimitsTold
from caesura.runtime.server.load.gate import Gate, QueueBound, unavailable
from caesura.runtime.server.load.metrics import Metrics
from caesura.runtime.server.load.state import State
from caesura.runtime.server.responses.conversations import conversation_routes
from caesura.runtime.server.responses.routes import response_routes
from caesura.runtime.server.responses.service import Responses
from caesura.runtime.server.responses.store import ResponseStore, SqliteResponses
from caesura.runtime.server.responses.websocket import socket_routes
from caesura.runtime.server.trace import Traces
from caesura.runtime.supervision.readiness import Readiness
from caesura.runtime.supervision.supervisor import EngineMetrics, Supervisor
from caesura.runtime.tracing.setup import tracing_of
from caesura.runtime.whatif.replays import Replays
from caesura.runtime.whatif.routes import whatif_routes
from caesura.scheduler.vllm_server import VllmServer
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.people import People
from caesura.tools.registry import Registry

if TYPE_CHECKING:
    from caesura.runtime.tracing.setup import Given

MAX_CONCURRENT = 1024
MAX_BODY_BYTES = 16 * 2**20
KEEP_ALIVE_SECONDS = 15.0
SOCKETS = SocketLimits()
CHAT = "/v1/chat/completions"
_LEFT_WAITING = ApiError(
    503,
    "The server is shutting down, and this request waits for a person or a long tool: send it "
    "again. A question to a person is kept.",
    code="server_shutting_down",
    headers={"Retry-After": "1"},
)


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
        door: Door,
        router: Router,
        connections: Connections,
        cors: Collection[str],
        recorder: Recorder | None = None,
    ) -> None:
        self._state = state
        self._traces = traces
        self._responses, self._chats = runs
        self._router = router
        self._connections = connections
        self.check_route = door.check_route
        """Raises `ApiError` 403 for a request whose key has too low a role."""
        self._following: asyncio.Task[None] | None = None
        self._log = None if recorder is None else HttpLog(recorder)
        inner: ASGIApp = Errors(Access(self._connections, door.check))
        if door.quotas:
            inner = LimitsTold(inner, door.quotas)
        self._app: ASGIApp = Counted(inner, state.metrics.observe_request, self._log)
        if cors:
            self._app = CORSMiddleware(
                self._app, allow_origins=cors, allow_methods=["*"], allow_headers=["*"]
            )

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
            self._chats.resume(found)

    def _go_on(self, found: Sequence[Recorded]) -> None:
        self._responses.go_on(found)
        self._chats.resume(found)

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
        if self._log is not None:
            self._log.flush()

    @property
    def sockets(self) -> SocketLimits:
        """The bounds on the connections of its clients."""
        return self._connections.limits

    def name_server(self, name: str) -> None:
        """Name this server in the header `Caesura-Server` of every answer, for routers of several.

        Call it before the first request. Raises `UsageError` for a name that no header can carry.
        """
        self._app = Named(self._app, name)

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


def create_app(
    engine: Engine,
    tools: Registry,
    *,
    api_key: ApiKeys = None,
    allowed_hosts: Collection[str] = (),
    allowed_origins: Collection[str] = (),
    shared_prefix_cache: bool = False,
    artifacts: ArtifactStore | None = None,
    limits: Limits | None = None,
    people: People | None = None,
    max_concurrent: int = MAX_CONCURRENT,
    queue: QueueBound | None = None,
    client_max_size: int = MAX_BODY_BYTES,
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    tracing: "Given" = None,
    recorder: Recorder | None = None,
    store: ResponseStore | None = None,
    vllm: VllmServer | None = None,
    allow_private: bool = False,
    replays: Replays | None = None,
    sockets: SocketLimits = SOCKETS,
    audit: AuditLog | None = None,
    journal: JournalStore | None = None,
    supervisor: Supervisor | None = None,
) -> Application:
    """Return an ASGI application that serves `engine` with OpenAI's and Anthropic's HTTP APIs.

    Clients name those of `tools` that the server runs. `api_key` is one or several, with caches of
    their own unless `shared_prefix_cache`; without one, a request must address an IP address,
    `localhost` or one of `allowed_hosts`. Pages of `allowed_origins` may read the answers (CORS).
    `limits` bound runs, `max_concurrent` those under way, `queue` their waits, `client_max_size`
    bodies, and `sockets` connections. `store` keeps responses, and `journal` runs, which then
    survive this process. The caller closes `engine`, `people` and `recorder`. Raises `UsageError`.
    """
    _check_positive(max_concurrent, client_max_size, keep_alive_seconds)
    door = Door(api_key, allowed_hosts, allowed_origins, shared_prefix_cache)
    spans = tracing_of(tracing, recorder)
    metrics = Metrics(None if spans is None else spans.exports, recorder, tools.observed)
    state = State(
        engine=engine,
        tools=tools,
        limits=bounded(limits or Limits(), engine.max_answer_tokens),
        metrics=metrics,
        gate=_gate(max_concurrent, metrics, supervisor, door, queue),
        door=door,
        keep_alive_seconds=keep_alive_seconds,
        media=MediaFetcher(allow_private=allow_private),
        people=people,
        tracing=spans,
        replays=replays,
        journal=None if journal is None else JournalWriter(journal),
        readiness=_readiness(supervisor, metrics),
        audit=None if audit is None else Auditing(audit, door.names),
    )
    traces = Traces(recorder, artifacts, keep_alive_seconds)
    runs = Runs(Responses(state, store or SqliteResponses(None)), KeptChats(state))
    router = _router(state, vllm, runs, traces, artifacts)
    inner = Connections(router, client_max_size, sockets)
    return Application(state, traces, runs, door, router, inner, allowed_origins, recorder)


def _router(
    state: State,
    vllm: VllmServer | None,
    runs: Runs,
    traces: Traces,
    artifacts: ArtifactStore | None,
) -> Router:
    delegation = Delegation(vllm, state) if vllm else None
    splicing = vllm.splicing if vllm else None
    chat = Streamed(ChatCompletions(state, delegation, runs.chats, splicing).answer)
    messages = Streamed(Messages(state, delegation).answer)
    json_only = [Middleware(JsonOnly)]
    routes: list[BaseRoute] = [
        Route(CHAT, chat, methods=["POST"], middleware=json_only),
        Route(MESSAGES, messages, methods=["POST"], middleware=json_only),
        *response_routes(runs.responses, state),
        *socket_routes(runs.responses),
        *conversation_routes(runs.responses),
        *traces.routes(),
        *page_routes(),
    ]
    if vllm is None or not vllm.listens:
        # vLLM's list of models holds adapters too.
        routes += about_routes(state, lists_models=vllm is None)
    if artifacts is not None:
        routes += artifact_routes(artifacts, state.door)
    if state.people is not None:
        routes += people_routes(
            state.people, state.door, state.keep_alive_seconds, lambda: traces.recording
        )
    if state.replays is not None:
        routes += whatif_routes(state.replays)
    return Router(routes, redirect_slashes=False, default=delegation or _no_route)


def _check_positive(max_concurrent: int, client_max_size: int, keep_alive_seconds: float) -> None:
    if max_concurrent < 1 or client_max_size < 1 or keep_alive_seconds <= 0:
        raise UsageError(
            "max_concurrent, client_max_size and keep_alive_seconds must be positive, "
            f"got {max_concurrent}, {client_max_size} and {keep_alive_seconds:g}"
        )


def _readiness(supervisor: Supervisor | None, metrics: Metrics) -> Readiness | None:
    """Return what a supervisor knows, if there is one, and show it among the metrics."""
    if supervisor is None:
        return None
    metrics.include(EngineMetrics(supervisor))
    return supervisor.readiness


def _gate(
    most: int,
    metrics: Metrics,
    supervisor: Supervisor | None,
    door: Door,
    queue: QueueBound | None,
) -> Gate:
    if queue is not None:
        metrics.queue_seconds.set_function(lambda: queue.wait_seconds)
    check = partial(_check_draining, supervisor)
    return Gate(most, metrics.in_flight, door.quotas, check, queue)


def _check_draining(supervisor: Supervisor | None) -> None:
    """Raise `ApiError` 503 while the server finishes its work and takes no more."""
    why = None if supervisor is None else supervisor.readiness.not_ready
    if why is not None and why.status == "draining":
        raise unavailable(why)


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    raise ApiError(404, "There is no such route.", code="unknown_url")
