"""What the server tells about itself: `/v1/models`, `/health` and `/metrics`."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from caesura.runtime.server.http.access import HEALTH
from caesura.runtime.server.http.answers import JsonAnswer
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.metrics import CONTENT_TYPE
from caesura.runtime.server.state import State


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
        return JsonAnswer({"object": "list", "data": [model]})

    async def one_model(request: Request) -> Response:
        asked = request.path_params["id"]
        if asked != name:
            message = f"The model {asked!r} is not served here; {name!r} is."
            raise ApiError(404, message, param="model", code="model_not_found")
        return JsonAnswer(model)

    async def health(request: Request) -> Response:
        await state.engine.check_health()
        return JsonAnswer({"status": "ok"})

    async def metrics(request: Request) -> Response:
        return Response(state.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    routes: list[BaseRoute] = [Route("/v1/models", models)] if lists_models else []
    return [
        *routes,
        Route("/v1/models/{id:path}", one_model),  # names of models contain slashes
        Route(HEALTH, health),
        Route("/metrics", metrics),
    ]
