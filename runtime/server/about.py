"""What the server tells about itself: `/v1/models`, `/health`, `/ready` and `/metrics`."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from caesura.runtime.server.api.chat_request import adapter_of
from caesura.runtime.server.http.errors import JsonAnswer
from caesura.runtime.server.http.exchange import HEALTH, READY
from caesura.runtime.server.load.gate import unavailable
from caesura.runtime.server.load.metrics import CONTENT_TYPE
from caesura.runtime.server.load.state import State
from caesura.runtime.supervision import NotReady, Phase, Readiness


def about_routes(state: State, *, lists_models: bool) -> list[BaseRoute]:
    """Return the routes; without `lists_models`, another server answers for the list."""
    name = state.engine.model
    model: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": state.started_at,
        "owned_by": "caesura",
        "max_model_len": state.engine.context_tokens,
    }

    async def models(request: Request) -> Response:
        adapters = [model | {"id": each, "parent": name} for each in state.engine.adapters]
        return JsonAnswer({"object": "list", "data": [model, *adapters]})

    async def one_model(request: Request) -> Response:
        adapter = adapter_of(request.path_params["id"], state.engine)
        return JsonAnswer(model if adapter is None else model | {"id": adapter, "parent": name})

    async def health(request: Request) -> Response:
        if state.readiness is None:
            await state.engine.check_health()
            return JsonAnswer({"status": "ok"})
        return _health(state.readiness)

    async def ready(request: Request) -> Response:
        if state.readiness is None:
            await state.engine.check_health()
            return JsonAnswer({"status": Phase.READY})
        return _ready(state.readiness)

    async def metrics(request: Request) -> Response:
        return Response(state.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    routes: list[BaseRoute] = [Route("/v1/models", models)] if lists_models else []
    return [
        *routes,
        Route("/v1/models/{id:path}", one_model),  # names of models contain slashes
        Route(HEALTH, health),
        Route(READY, ready),
        Route("/metrics", metrics),
    ]


def loading_app(readiness: Readiness) -> ASGIApp:
    """Return what answers while the engine loads: probes, and a 503 for everything else."""

    async def health(request: Request) -> Response:
        return _health(readiness)

    def why() -> NotReady:
        return readiness.not_ready or NotReady("loading", "it has just started", 1)

    async def ready(request: Request) -> Response:
        return _not_ready(why())

    async def nothing_yet(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await unavailable(why()).response(scope["path"])(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1013})

    routes = [Route(HEALTH, health), Route(READY, ready)]
    return Router(routes, redirect_slashes=False, default=nothing_yet)


def _health(readiness: Readiness) -> Response:
    if readiness.dead is not None:
        return JsonAnswer({"status": Phase.FAILED, "reason": readiness.dead}, 503)
    status = "ok" if readiness.phase is Phase.READY else readiness.phase
    return JsonAnswer({"status": status})


def _ready(readiness: Readiness) -> Response:
    why = readiness.not_ready
    return JsonAnswer({"status": Phase.READY}) if why is None else _not_ready(why)


def _not_ready(why: NotReady) -> Response:
    body = {"status": why.status, "reason": why.reason}
    return JsonAnswer(body, 503, {"Retry-After": str(why.retry_seconds)})
