"""`/v1/sessions`: the trajectories of sessions, and a base URL for each session.

Behind `/s/{id}/v1` all routes of the API are those of one session, whatever its clients send.
"""

import asyncio
import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from caesura.runtime.errors import UsageError
from caesura.runtime.server.http.connection import JSON, JsonOnly
from caesura.runtime.server.http.errors import ApiError, JsonAnswer, invalid, sentence
from caesura.runtime.server.http.exchange import note_answer
from caesura.runtime.server.http.lineage import GATEWAY, named_by, session_in
from caesura.runtime.server.keys.access import Door
from caesura.runtime.server.keys.sender import sender_of
from caesura.runtime.server.load.state import State
from caesura.runtime.server.responses.schema import MAX_METADATA_PAIRS, Metadata, parsed_as
from caesura.runtime.trajectories.adapters.atif import to_atif
from caesura.runtime.trajectories.adapters.turns import in_time, to_rllm
from caesura.runtime.trajectories.files import to_json
from caesura.runtime.trajectories.kept import KeptSession, KeptSessions
from caesura.runtime.trajectories.trajectory import REWARD, Trajectory
from caesura.scheduler.programs import MAX_NAME_CHARACTERS, PARENT, SESSION, Origin

JSON_LINES = "application/jsonl"
_LINES = (JSON_LINES, "application/x-ndjson", "application/json-lines")
"""The values of `Accept` for one trajectory a line."""
FORMATS = ("json", "jsonl", "atif")
MAX_REWARDS = 64
_SOUND = re.compile(r"[ -~\xa0-\xff]+")
"""A name that a header can hold."""

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=64)]


class NewSession(BaseModel):
    """The body of `POST /v1/sessions`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    session_id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)] | None = None
    """Its name, such as of rLLM's client; None: the server gives one."""
    metadata: Metadata | None = None
    parent: str | None = None

    @field_validator("session_id")
    @classmethod
    def _sound(cls, name: str | None) -> str | None:
        if name is not None and not _SOUND.fullmatch(name):
            raise ValueError(f"must be a text that a header can hold, got {name[:40]!r}")
        return name


class Completed(BaseModel):
    """The body of `POST /v1/sessions/{id}/complete`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reward: Number | Annotated[dict[Name, Number], Field(max_length=MAX_REWARDS)] | None = None
    metadata: Metadata | None = None

    @property
    def rewards(self) -> Mapping[str, float]:
        """The rewards by their names; a number is the whole one."""
        if self.reward is None:
            return {}
        return self.reward if isinstance(self.reward, dict) else {REWARD: self.reward}


def session_routes(state: State) -> list[BaseRoute]:
    """Return the routes of sessions."""
    handlers = _Handlers(state)
    post: dict[str, Any] = {"methods": ["POST"], "middleware": [Middleware(JsonOnly)]}
    one = "/v1/sessions/{id:path}"  # names of sessions may contain slashes
    return [
        Route("/v1/sessions", handlers.create, **post),
        Route(f"{one}/trajectories", handlers.trajectories, methods=["GET"]),
        Route(f"{one}/traces", handlers.traces, methods=["GET"]),
        Route(f"{one}/complete", handlers.complete, **post),
        Route(one, handlers.get, methods=["GET"]),
        Route(one, handlers.delete, methods=["DELETE"]),
    ]


class _Handlers:
    def __init__(self, state: State) -> None:
        self._state = state

    async def create(self, request: Request) -> Response:
        """Begin a session; answer with its base URL."""
        asked = parsed_as(NewSession, await request.body() or b"{}")
        sessions, tenant = self._sessions, sender_of(request).tenant
        parent = None if asked.parent is None else sessions.find(asked.parent, tenant)
        if asked.parent is not None and parent is None:
            raise _unknown(asked.parent, "parent")
        above = "" if parent is None else parent.id
        made = sessions.create(tenant, above, asked.metadata or {}, asked.session_id)
        note_answer(request.scope, made.id)
        return JsonAnswer(self._public(request, made))

    async def get(self, request: Request) -> Response:
        """A session: its rewards, its metadata, and the sessions that it has started."""
        return JsonAnswer(self._public(request, self._found(request)))

    async def trajectories(self, request: Request) -> Response:
        """The trajectory of a session, then those of its sub-agents: JSON, JSON lines, or ATIF."""
        form = _format_of(request)
        return await self._told(request, partial(_written, form=form), form)

    async def traces(self, request: Request) -> Response:
        """The turns of a session and of its sub-agents, as rLLM's gateway client reads them."""
        since, limit = (_number(request, name) for name in ("since", "limit"))
        return await self._told(request, partial(_traced, since=since, limit=limit))

    async def _told(
        self, request: Request, write: Callable[[Sequence[Trajectory]], str], form: str = "json"
    ) -> Response:
        """Write what is recorded of a session and of those below; raise `ApiError`."""
        session = self._found(request)
        try:
            made = [each.trajectory() for each in (session, *self._sessions.below(session))]
            body = await asyncio.to_thread(write, made)
        except UsageError as error:
            raise ApiError(409, sentence(error), code="trajectory_incomplete") from None
        return Response(body, media_type=JSON_LINES if form == "jsonl" else JSON)

    async def complete(self, request: Request) -> Response:
        """End a session with a reward, or several by name; the last ones count."""
        asked = parsed_as(Completed, await request.body() or b"{}")
        session = self._found(request, own=True)
        metadata = {**session.metadata, **(asked.metadata or {})}
        if len(metadata) > MAX_METADATA_PAIRS:
            raise invalid(
                f"metadata: the session would have {len(metadata)} pairs; at most"
                f" {MAX_METADATA_PAIRS} are allowed.",
                "metadata",
            )
        session.metadata = metadata
        session.rewards = dict(asked.rewards) if asked.rewards else session.rewards
        session.completed_at = session.completed_at or time.time()
        self._sessions.used(session)
        await self._end(session)
        return JsonAnswer(self._public(request, session))

    async def delete(self, request: Request) -> Response:
        """Delete a session and what it has started, with all that was recorded of them."""
        session = self._found(request)
        self._sessions.delete(session)
        await self._end(session)
        return JsonAnswer({"id": session.id, "object": "session.deleted", "deleted": True})

    async def _end(self, session: KeptSession) -> None:
        """Free what the engine keeps for later requests of a session."""
        await self._state.engine.end_session(Origin(session.tenant, session.id))

    @property
    def _sessions(self) -> KeptSessions:
        """The sessions that are kept; raises `ApiError` 404 where none are."""
        if self._state.sessions is None:
            raise ApiError(
                404,
                "This server keeps no trajectories: start `caesura serve` with --trajectories.",
                code="trajectories_off",
            )
        return self._state.sessions

    def _found(self, request: Request, *, own: bool = False) -> KeptSession:
        """Return the session that a request names; raise `ApiError` 404 if there is none.

        With `own` it must be the sender's, also where that may read those of others.
        """
        name, sender = request.path_params["id"], sender_of(request)
        everybodys = not own and self._state.door.reach(sender) is None
        found = self._sessions.find(name, sender.tenant, everybodys=everybodys)
        if found is None:
            raise _unknown(name)
        return found

    def _public(self, request: Request, session: KeptSession) -> dict[str, Any]:
        root = self._state.options.public_url or str(request.base_url)
        below = self._sessions.below(session)
        ended = session.completed_at
        return {
            "id": session.id,
            "session_id": session.id,  # as rLLM's client reads it
            "object": "session",
            "created_at": int(session.created_at),
            "completed_at": None if ended is None else int(ended),
            "base_url": f"{root.rstrip('/')}/s/{quote(session.id, safe='')}/v1",
            "parent": session.parent or None,
            "children": [each.id for each in below if each.parent == session.id],
            "metadata": session.metadata,
            "rewards": session.rewards,
            "tokens": session.recorder.tokens,
        }


class Gateway:
    """Middleware that makes a request below `/s/{id}` one of that session.

    It stands before all that reads paths and headers. What a client tells of a sub-agent makes the
    request one of a session of its own, below the one of the URL.
    """

    def __init__(self, app: ASGIApp, sessions: KeptSessions, door: Door) -> None:
        self._app = app
        self._sessions = sessions
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        found = session_in(scope["path"]) if scope["type"] in ("http", "websocket") else None
        if found is not None:
            self._enter(scope, *found)
        await self._app(scope, receive, send)

    def _enter(self, scope: Scope, name: str, path: str) -> None:
        headers = Headers(scope=scope)
        tenant = self._door.sender(headers).tenant
        session = self._sessions.find(name, tenant) if _SOUND.fullmatch(name) else None
        scope[GATEWAY] = name, session
        scope["path"], scope["raw_path"] = path, quote(path).encode()
        if session is None:
            return
        name, parent, named = session.id, session.parent, named_by(headers)
        told = MutableHeaders(raw=list(scope["headers"]))
        if named.session and named.parent:
            above = _below(name, named.parent)
            is_known = self._sessions.find(above, tenant) is not None
            name, parent = _below(name, named.session), above if is_known else name
        told[SESSION] = name
        del told[PARENT]
        if parent:
            told[PARENT] = parent
        scope["headers"] = told.raw


class GatewayDoor:
    """Middleware that refuses requests to the base URL of a session that takes none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; raise `ApiError` 404 or 410 for an unknown or a completed session."""
        if GATEWAY in scope:
            name, session = scope[GATEWAY]
            if session is None:
                raise _unknown(name)
            if session.completed_at is not None:
                raise ApiError(
                    410,
                    f"The session {name[:80]!r} is complete: begin another by POST /v1/sessions.",
                    code="session_completed",
                )
        await self._app(scope, receive, send)


def _below(name: str, child: str) -> str:
    """Return the name of a sub-agent's session below another, of a length that names may have."""
    made = f"{name}/{child}"
    if len(made) <= MAX_NAME_CHARACTERS:
        return made
    return f"{name[: MAX_NAME_CHARACTERS - 65]}/{hashlib.sha256(child.encode()).hexdigest()}"


def _unknown(name: str, param: str = "session_id") -> ApiError:
    message = f"There is no session with the id {name[:80]!r}."
    return ApiError(404, message, param=param, code="session_not_found")


def _format_of(request: Request) -> str:
    """Return the format that a request asks for; raise `ApiError` for an unknown one."""
    asked = request.query_params.get("format")
    if asked is None:
        accepted = request.headers.get("Accept", "")
        return "jsonl" if any(each in accepted for each in _LINES) else "json"
    if asked not in FORMATS:
        raise invalid(f"format must be one of {', '.join(FORMATS)}, got {asked[:40]!r}.", "format")
    return asked


def _written(trajectories: Sequence[Trajectory], form: str) -> str:
    """Return trajectories as JSON lines, as one document in ATIF, or as a list of one object."""
    if form == "atif":
        return json.dumps(to_atif(trajectories))
    told = [to_json(each) for each in trajectories]
    if form == "jsonl":
        return "".join(f"{each}\n" for each in told)
    return f'{{"object":"list","data":[{",".join(told)}]}}'


def _traced(trajectories: Sequence[Trajectory], since: float | None, limit: float | None) -> str:
    """Return turns as JSON, in the order of their times: from a Unix time, and at most so many."""
    told = [turn for each in trajectories if each.rollouts() for turn in to_rllm(each)]
    told = in_time(told, lambda turn: float(turn["timestamp"]))
    found = [turn for turn in told if since is None or turn["timestamp"] >= since]
    return json.dumps(found if limit is None else found[: int(limit)])


def _number(request: Request, name: str) -> float | None:
    """Return a number from 0 of a request's query, or None; raise `ApiError` for anything else."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise invalid(f"{name} must be a number from 0, got {text[:40]!r}.", name)
    return number
