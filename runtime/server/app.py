"""The application: its routes, and the middlewares of every request."""

import asyncio
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.typedefs import Handler

from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.run.limits import Limits
from caesura.runtime.server.access import HEALTH, access_checks
from caesura.runtime.server.artifacts import serve_artifacts
from caesura.runtime.server.chat.gate import Gate
from caesura.runtime.server.chat.handler import chat_completions
from caesura.runtime.server.errors import ApiError, errors_middleware
from caesura.runtime.server.metrics import CONTENT_TYPE, Metrics
from caesura.runtime.server.people import serve_people
from caesura.runtime.server.state import OUTCOME, STATE, State
from caesura.runtime.server.trace import serve_traces
from caesura.runtime.server.ui import serve_ui
from caesura.runtime.tracing.setup import tracing_of
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.people import People
from caesura.tools.registry import Registry

if TYPE_CHECKING:
    from caesura.runtime.tracing.setup import Given

MAX_CONCURRENT = 1024
MAX_BODY_BYTES = 16 * 2**20
KEEP_ALIVE_SECONDS = 15.0
UNDER_WAY = web.AppKey("caesura_under_way", set[asyncio.Task[object]])
"""The tasks of all requests that the server is answering."""
CLIENT_LEFT = 499
"""The status under which a request counts whose client left early. It is never sent."""


def create_app(
    engine: Engine,
    tools: Registry,
    *,
    api_key: str | None = None,
    allowed_hosts: Collection[str] = (),
    artifacts: ArtifactStore | None = None,
    limits: Limits | None = None,
    people: People | None = None,
    max_concurrent: int = MAX_CONCURRENT,
    client_max_size: int = MAX_BODY_BYTES,
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    tracing: "Given" = None,
    recorder: Recorder | None = None,
) -> web.Application:
    """Return an application that serves `engine` with OpenAI's HTTP API.

    A client may ask the server to run any of `tools`, with the field `server_tools`.
    With `api_key`, every route except `/health` and the files under `/ui/` requires the key as a
    bearer token. Without a key, a request must address the server by an IP address, by
    `localhost` or by one of `allowed_hosts`. It must not come from a foreign web page.

    The routes under `/artifacts/` serve the tools' files, and those under `/v1/pending` the items
    that wait for a person. `limits` bound the run of each request. `max_concurrent` bounds the
    chat completions under way, and `client_max_size` the bytes of a body. A stream that was
    silent for `keep_alive_seconds` gets a comment. `tracing` and `recorder` are as in `Agent`.
    The caller closes the engine, the people and the recorder.

    Run the application with `handler_cancellation=True`, as `serve` does. Otherwise the server
    notices that a client left during a tool call only at the next write.

    Raises `UsageError` for a setting out of range.
    """
    _check_positive(max_concurrent, client_max_size, keep_alive_seconds)
    spans = tracing_of(tracing, recorder)
    metrics = Metrics(None if spans is None else spans.exports, recorder)
    middlewares = [_count, errors_middleware, *access_checks(api_key, allowed_hosts)]
    app = web.Application(middlewares=middlewares, client_max_size=client_max_size)
    app[STATE] = State(
        engine=engine,
        tools=tools,
        limits=limits or Limits(),
        metrics=metrics,
        gate=Gate(max_concurrent, metrics.in_flight),
        keep_alive_seconds=keep_alive_seconds,
        started_at=int(time.time()),
        tracing=spans,
    )
    app[UNDER_WAY] = set()
    _serve_chat(app)
    if artifacts is not None:
        serve_artifacts(app, artifacts)
    if people is not None:
        serve_people(app, people)
    serve_traces(app, recorder, artifacts)
    serve_ui(app)
    return app


def _check_positive(max_concurrent: int, client_max_size: int, keep_alive_seconds: float) -> None:
    if max_concurrent < 1 or client_max_size < 1 or keep_alive_seconds <= 0:
        raise UsageError(
            "max_concurrent, client_max_size and keep_alive_seconds must be positive, "
            f"got {max_concurrent}, {client_max_size} and {keep_alive_seconds:g}"
        )


def _serve_chat(app: web.Application) -> None:
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/v1/models/{id:.+}", _model)  # names of models contain slashes
    app.router.add_post("/v1/chat/completions", chat_completions)
    app.router.add_get(HEALTH, _health)
    app.router.add_get("/metrics", _metrics)


async def _models(request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [_model_object(request)]})


async def _model(request: web.Request) -> web.Response:
    if request.match_info["id"] != request.app[STATE].engine.model:
        served = request.app[STATE].engine.model
        message = f"The model {request.match_info['id']!r} is not served here; {served!r} is."
        raise ApiError(404, message, param="model", code="model_not_found")
    return web.json_response(_model_object(request))


def _model_object(request: web.Request) -> dict[str, Any]:
    state = request.app[STATE]
    return {
        "id": state.engine.model,
        "object": "model",
        "created": state.started_at,
        "owned_by": "caesura",
        "max_model_len": state.engine.context_tokens,
    }


async def _health(request: web.Request) -> web.Response:
    await request.app[STATE].engine.check_health()
    return web.json_response({"status": "ok"})


async def _metrics(request: web.Request) -> web.Response:
    body = request.app[STATE].metrics.exposition()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


@web.middleware
async def _count(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count every request under its route: a label per path would let clients add any number."""
    started = time.monotonic()
    metrics = request.app[STATE].metrics
    resource = request.match_info.route.resource
    route = "unknown" if resource is None else resource.canonical
    status = CLIENT_LEFT
    task = asyncio.current_task()
    assert task is not None
    request.app[UNDER_WAY].add(task)
    try:
        response = await handler(request)
        status = request.get(OUTCOME, response.status)
        return response
    finally:
        request.app[UNDER_WAY].discard(task)
        metrics.requests.labels(route, str(status)).inc()
        metrics.duration.labels(route).observe(time.monotonic() - started)
