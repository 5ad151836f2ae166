"""`/v1/what-if`: a stretch of a recording, replayed as it was recorded and under other policies."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from caesura.runtime.errors import UsageError
from caesura.runtime.server.http.connection import JsonOnly
from caesura.runtime.server.http.errors import (
    ApiError,
    JsonAnswer,
    from_validation,
    invalid,
    sentence,
)
from caesura.runtime.whatif.choice import NAMES, Choice
from caesura.runtime.whatif.replays import Busy, Replays


class Asked(BaseModel):
    """The body of `POST /v1/what-if`. Times are Unix seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recording: int
    since: float = Field(allow_inf_nan=False)
    until: float = Field(allow_inf_nan=False)
    policies: dict[str, str] | list[dict[str, str]] = {}
    """What a replay changes of the recorded policy; or what each of several changes."""


def whatif_routes(replays: Replays) -> list[Route]:
    """Return the routes that begin, show and cancel replays."""
    handlers = _Handlers(replays)
    json_only = [Middleware(JsonOnly)]
    return [
        Route("/v1/what-if", handlers.shown, methods=["GET"]),
        Route("/v1/what-if", handlers.begun, methods=["POST"], middleware=json_only),
        Route("/v1/what-if", handlers.cancelled, methods=["DELETE"]),
    ]


class _Handlers:
    def __init__(self, replays: Replays) -> None:
        self._replays = replays

    async def shown(self, request: Request) -> Response:
        """Answer with the policies that can be named, and the last replay."""
        return JsonAnswer(self._state())

    async def begun(self, request: Request) -> Response:
        """Begin a replay; 409 while one is under way."""
        try:
            asked = Asked.model_validate_json(await request.body())
            given = asked.policies if isinstance(asked.policies, list) else [asked.policies]
            choices = [_choice(one) for one in given]
            self._replays.start(asked.recording, asked.since, asked.until, choices)
        except ValidationError as error:
            raise from_validation(error) from None
        except UsageError as error:
            raise invalid(sentence(error)) from None
        except Busy:
            message = "A replay is under way: wait for it, or cancel it with DELETE."
            raise ApiError(409, message, code="busy") from None
        return JsonAnswer(self._state(), status_code=202)

    async def cancelled(self, request: Request) -> Response:
        """Cancel the replay that is under way, if there is one."""
        await self._replays.cancel()
        return JsonAnswer(self._state())

    def _state(self) -> dict[str, Any]:
        job = self._replays.job
        policies = {what: list(names) for what, names in NAMES.items()}
        return {"policies": policies, "job": None if job is None else job.public()}


def _choice(given: Mapping[str, str]) -> Choice:
    if unknown := set(given) - set(NAMES):
        raise UsageError(
            f"policies: unknown name {min(unknown)!r:.60}; choose from: {', '.join(NAMES)}"
        )
    return Choice(**given)
