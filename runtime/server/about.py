"""What the server tells about itself: `/v1/models`, `/health`, `/ready` and `/metrics`.

Clients of Anthropic's API, which send `anthropic-version`, get its list of models.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caesura.runtime.server.api.chat_request import adapter_of
from caesura.runtime.server.http.errors import ApiError, JsonAnswer, anthropic_error, invalid
from caesura.runtime.server.http.exchange import HEALTH, READY
from caesura.runtime.server.load.gate import unavailable
from caesura.runtime.server.load.metrics import CONTENT_TYPE
from caesura.runtime.server.load.state import State
from caesura.runtime.supervision import NotReady, Phase, Readiness

PAGE = 20
MAX_PAGE = 1000
"""How many models Anthropic's list holds, unless a request says so, and at most."""


class Models:
    """The served model, its adapters and the agents, in OpenAI's form with vLLM's fields.

    They are in Anthropic's form too. `others` answers for OpenAI's list, if it is given, to which
    the agents are added.
    """

    def __init__(self, state: State, others: ASGIApp | None) -> None:
        """Create it for an application."""
        self._state = state
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for the list."""
        state = self._state
        names = [*state.engine.names, *state.engine.adapters, *state.agents]
        if _speaks_anthropic(Headers(scope=scope)):
            answer = _in_anthropics_form(lambda: self._page(names, HTTPConnection(scope)))
        elif self._others is not None:
            await self._others(scope, receive, self._with_agents(scope, send))
            return
        else:
            answer = JsonAnswer({"object": "list", "data": list(map(self._card, names))})
        await answer(scope, receive, send)

    async def one(self, request: Request) -> Response:
        """Answer a request for one model; raise `ApiError` 404 for one that is not served."""
        name = request.path_params["id"]

        def told(shown: Any) -> dict[str, Any]:
            adapter_of(name, self._state.engine, self._state.agents)
            return dict(shown(name))

        if _speaks_anthropic(request.headers):
            return _in_anthropics_form(lambda: told(self._info))
        return JsonAnswer(told(self._card))

    def _with_agents(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that adds the agents to a list of models."""
        if not self._state.agents or scope["method"] != "GET":
            return send
        start: Message = {}
        body = bytearray()

        async def extended(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
                return
            body.extend(message.get("body", b""))
            if message.get("more_body", False):
                return
            told = _listed(start["status"], bytes(body))
            if told is None:
                await send(start)
                await send({**message, "body": bytes(body)})
                return
            told["data"] += map(self._card, self._state.agents)
            answer = JsonAnswer(told)
            headers = {"headers": answer.raw_headers}
            await send({**start, **headers})
            await send({**message, "body": answer.body})

        return extended

    def _card(self, name: str) -> dict[str, Any]:
        base = self._state.engine.model
        agent = self._state.agents.get(name)
        about = {} if agent is None else {"description": agent.description}
        return {
            "id": name,
            "object": "model",
            "created": self._state.started_at,
            "owned_by": "caesura",
            "root": name,
            "parent": None if name in self._state.engine.names else base,
            "max_model_len": self._state.engine.context_tokens,
            "permission": [],
        } | about

    def _info(self, name: str) -> dict[str, Any]:
        engine = self._state.engine
        created = datetime.fromtimestamp(self._state.started_at, UTC)
        return {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycle": "active",
            "max_input_tokens": engine.context_tokens,
            "max_tokens": engine.max_answer_tokens or engine.context_tokens,
        }

    def _page(self, names: Sequence[str], request: HTTPConnection) -> dict[str, Any]:
        asked = request.query_params
        limit = _limit(asked.get("limit"))
        first, end = 0, len(names)
        if (after := asked.get("after_id")) is not None:
            first = _place(names, after, "after_id") + 1
            has_more = end - first > limit
            end = min(end, first + limit)
        elif (before := asked.get("before_id")) is not None:
            end = _place(names, before, "before_id")
            has_more = end > limit
            first = max(0, end - limit)
        else:
            has_more = end > limit
            end = min(end, limit)
        data = [self._info(name) for name in names[first:end]]
        ids = [each["id"] for each in data] or [None]
        return {"data": data, "has_more": has_more, "first_id": ids[0], "last_id": ids[-1]}


def _speaks_anthropic(headers: Mapping[str, str]) -> bool:
    return "anthropic-version" in headers


def _in_anthropics_form(told: Any) -> JsonAnswer:
    """Return what `told` returns as an answer, or the `ApiError` that it raises."""
    try:
        return JsonAnswer(told())
    except ApiError as error:
        body = anthropic_error(error.status, error.message, error.code)
        return JsonAnswer(body, error.status, error.headers)


def _limit(given: str | None) -> int:
    if given is None:
        return PAGE
    if not given.isdecimal() or not 1 <= int(given) <= MAX_PAGE:
        raise invalid(f"limit must be a whole number from 1 to {MAX_PAGE}.", "limit")
    return int(given)


def _place(names: Sequence[str], name: str, param: str) -> int:
    if name not in names:
        raise invalid(f"{param}: no model {name[:64]!r} is served here.", param)
    return names.index(name)


def _listed(status: int, body: bytes) -> dict[str, Any] | None:
    """Return the list in an answer, or None if it holds none."""
    try:
        told = json.loads(body) if status == 200 else None
    except ValueError:
        return None
    return told if isinstance(told, dict) and isinstance(told.get("data"), list) else None


def model_routes(state: State, others: ASGIApp | None) -> list[BaseRoute]:
    """Return the routes of models; `others` answers for OpenAI's list, if it is given."""
    models = Models(state, others)
    return [
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{id:path}", models.one),  # names of models contain slashes
    ]


def about_routes(state: State, others: ASGIApp | None) -> list[BaseRoute]:
    """Return the routes; `others` answers for OpenAI's list of models, if it is given."""

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

    return [
        *model_routes(state, others),
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
