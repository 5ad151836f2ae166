"""The routes of the server, and an OpenAPI document of them, from the application itself."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pydantic import BaseModel
from starlette.routing import Route, WebSocketRoute

from caesura import ScriptedEngine, __version__
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.server import ServerParts, create_app
from caesura.runtime.server.api.chat_request import ChatRequest
from caesura.runtime.server.api.messages_request import MessagesRequest
from caesura.runtime.server.api.people import Said
from caesura.runtime.server.http.errors import speaks_anthropic
from caesura.runtime.server.http.stream import Streamed
from caesura.runtime.server.keys.rules import Role, rule_of
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.server.responses.conversations import (
    NewConversation,
    NewItems,
    NewMetadata,
)
from caesura.runtime.server.responses.schema import (
    CompactRequest,
    ResponseRequest,
    TokenCountRequest,
)
from caesura.runtime.server.responses.steering import SteerRequest
from caesura.runtime.server.sessions import Completed, NewSession
from caesura.runtime.whatif.replays import Replays
from caesura.runtime.whatif.routes import Asked
from caesura.tools import Registry
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.people import People
from tests.reference.markdown import code, first_line, page, table

ABOUT = (
    "[openapi.json](openapi.json) has these routes with the fields of their bodies, as an OpenAPI"
    " 3.1 document. All other routes are those of vLLM's own server, which answers them behind the"
    " same port; its own document is at `GET /openapi.json`. Errors have OpenAI's form, and below"
    " `/v1/messages` Anthropic's ([errors](errors.md)). The role is the least that a key needs"
    " ([roles](../guides/serving.md#roles)); without keys every route is open."
)
BODIES: Mapping[tuple[str, str], type[BaseModel]] = {
    ("POST", "/v1/chat/completions"): ChatRequest,
    ("POST", "/v1/messages"): MessagesRequest,
    ("POST", "/v1/messages/count_tokens"): MessagesRequest,
    ("POST", "/v1/responses"): ResponseRequest,
    ("POST", "/v1/responses/input_tokens"): TokenCountRequest,
    ("POST", "/v1/responses/compact"): CompactRequest,
    ("POST", "/v1/responses/{id}/steer"): SteerRequest,
    ("POST", "/v1/conversations"): NewConversation,
    ("POST", "/v1/conversations/{id}"): NewMetadata,
    ("POST", "/v1/conversations/{id}/items"): NewItems,
    ("POST", "/v1/sessions"): NewSession,
    ("POST", "/v1/sessions/{id:path}/complete"): Completed,
    ("POST", "/v1/pending/{id}"): Said,
    ("POST", "/v1/what-if"): Asked,
}
"""What reads the body of each route; that of /v1/chat/completions also passes on vLLM's fields."""
NO_BODY = {("POST", "/v1/responses/{id}/cancel")}
FREE_BODY = {("PATCH", "/v1/trace/{id}"): "What to change of the recording."}
SAYS = {
    "/": "Lead to the page.",
    "/ui": "Lead to the page.",
    "/ui/": "The page that shows what was recorded.",
    "/ui/ui.js": "The page's script.",
    "/ui/ui.css": "The page's styles.",
    "/v1/models": "List the served model, its adapters and the agents.",
    "/health": "200 while the server is alive, also while its engine is started again.",
    "/ready": "200 while the server takes work; 503 while it loads, restarts or drains.",
    "/metrics": "The metrics in Prometheus' text format.",
    "/v1/chat/completions": "Answer a chat completion, whole or streamed.",
    "/v1/messages": "Answer as Anthropic's Messages do, whole or streamed.",
    "/artifacts/{name:path}": "A file that a tool has made.",
    "POST /v1/conversations": "Create a conversation.",
    "GET /v1/conversations/{id}": "A conversation.",
    "POST /v1/conversations/{id}": "Change the metadata of a conversation.",
    "DELETE /v1/conversations/{id}": "Delete a conversation.",
    "GET /v1/conversations/{id}/items": "List the items of a conversation.",
    "POST /v1/conversations/{id}/items": "Add items to a conversation, 20 at most.",
    "GET /v1/conversations/{id}/items/{item_id}": "An item of a conversation.",
    "DELETE /v1/conversations/{id}/items/{item_id}": "Delete an item of a conversation.",
    "GET /v1/trace": "List the recordings.",
    "GET /v1/trace/{id}": "The entries of a recording; `live` is the one under way.",
    "GET /v1/trace/{id}/export": "A recording as one file that shows itself.",
    "GET /v1/trace/{id}/perfetto": "A recording for Perfetto.",
    "GET /v1/pending": "List what waits for a person.",
    "GET /v1/pending/{id}": "An item that waits, or has waited, for a person.",
}
"""What routes do whose handlers do not say it, by path or by method and path."""
QUERY: Mapping[str, tuple[tuple[str, str], ...]] = {
    "/v1/responses/{id}": (("stream", "boolean"), ("starting_after", "integer")),
    "/v1/responses/{id}/input_items": (
        ("limit", "integer"),
        ("order", "string"),
        ("after", "string"),
    ),
    "/v1/conversations/{id}/items": (
        ("limit", "integer"),
        ("order", "string"),
        ("after", "string"),
    ),
    "/v1/sessions/{id:path}/trajectories": (("format", "string"),),
    "/v1/pending": (("state", "string"),),
}
ERRORS = {
    "Error": {
        "type": "object",
        "description": "An error in OpenAI's form.",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            }
        },
    },
    "AnthropicError": {
        "type": "object",
        "description": "An error in Anthropic's form.",
        "required": ["type", "error"],
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


class Asking(NamedTuple):
    """A method and a path, who may ask, and what follows."""

    method: str
    path: str
    role: Role
    says: str
    streams: bool


def asked() -> list[Asking]:
    """Return all routes of an application that has all of its parts."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        here = Path(folder)
        store = Store(here / "traces.sqlite")
        recorder = stack.enter_context(Recorder(store, "reference", "serve", {"model": "m"}))
        parts = ServerParts(
            artifacts=ArtifactStore(here / "artifacts"),
            people=People(here / "people.sqlite"),
            recorder=recorder,
            replays=Replays(store, lambda: None),
        )
        app = create_app(ScriptedEngine([]), Registry([]), ServerOptions(), parts)
        return list(_asked(app._router.routes))


def _asked(routes: list[Any]) -> Iterator[Asking]:
    for route in routes:
        if isinstance(route, WebSocketRoute):
            role = rule_of("SOCKET", route.path)
            assert role is not None, route.path
            yield Asking("WebSocket", route.path, role, "Answer responses over a socket.", True)
            continue
        assert isinstance(route, Route), route
        endpoint = route.endpoint
        streams = isinstance(endpoint, Streamed)
        handler = endpoint.handler if isinstance(endpoint, Streamed) else endpoint
        for method in sorted((route.methods or set()) - {"HEAD"}):
            own = SAYS.get(route.path) or SAYS.get(f"{method} {route.path}")
            said = own or first_line(handler)
            assert said.endswith("."), f"{method} {route.path}: its handler has no docstring"
            role = rule_of(method, route.path)
            assert role is not None, route.path
            yield Asking(method, route.path, role, said, streams)


def routes_page() -> str:
    """Return the page."""
    rows = [
        [code(f"{each.method} {plain(each.path)}"), word(each.role), each.says] for each in asked()
    ]
    return page("Routes", ABOUT, table(("route", "role", "what it does"), rows))


def word(role: Role) -> str:
    """Return the least role of a route in a word."""
    return "none" if role is Role.OPEN else role.word


def plain(path: str) -> str:
    """Return a path without the kinds of its parameters."""
    return re.sub(r":\w+}", "}", path)


def openapi() -> str:
    """Return the OpenAPI document, as JSON."""
    schemas: dict[str, Any] = dict(ERRORS)
    paths: dict[str, dict[str, Any]] = {}
    for each in asked():
        if each.method == "WebSocket":
            continue
        paths.setdefault(plain(each.path), {})[each.method.lower()] = operation(each, schemas)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Caesura",
            "version": __version__,
            "description": "Caesura's own routes. vLLM's server answers all others.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8000"}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": SCHEMES},
    }
    return json.dumps(document, indent=1) + "\n"


def operation(each: Asking, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return what a method of a path takes and gives; add the schemas that it names."""
    names = re.findall(r"{(\w+)}", plain(each.path))
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    if each.method == "GET":
        parameters += [
            {"name": name, "in": "query", "schema": {"type": kind}}
            for name, kind in QUERY.get(each.path, ())
        ]
    error = "AnthropicError" if speaks_anthropic(each.path) else "Error"
    answers: dict[str, Any] = {"application/json": {}}
    if each.streams:
        answers["text/event-stream"] = {}
    if each.path == "/metrics":
        answers = {"text/plain": {}}
    elif each.path.startswith(("/ui", "/artifacts")) or each.path == "/":
        answers = {"*/*": {}}
    made: dict[str, Any] = {
        "summary": each.says,
        "operationId": operation_id(each),
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer.", "content": answers},
            "default": {
                "description": "An error.",
                "content": {"application/json": {"schema": ref(error)}},
            },
        },
        "security": [] if each.role is Role.OPEN else [{name: []} for name in SCHEMES],
        "x-caesura-role": word(each.role),
    }
    body = body_of(each, schemas)
    if body is not None:
        content = {"application/json": {"schema": body}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def operation_id(each: Asking) -> str:
    """Return a name of a method and a path."""
    words = re.findall(r"[a-z0-9_]+", plain(each.path).lower())
    if each.path.endswith("/"):
        words.append("index")
    return "_".join([each.method.lower(), *words])


def ref(name: str) -> dict[str, str]:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def body_of(each: Asking, schemas: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the body of a request."""
    key = (each.method, each.path)
    if key in FREE_BODY:
        return {"type": "object", "description": FREE_BODY[key]}
    if each.method != "POST" or key in NO_BODY:
        return None
    model = BODIES[key]
    name = model.__name__
    made = model.model_json_schema(ref_template=f"#/components/schemas/{name}.{{model}}")
    for inner, schema in made.pop("$defs", {}).items():
        schemas[f"{name}.{inner}"] = schema
    schemas[name] = made
    return ref(name)
