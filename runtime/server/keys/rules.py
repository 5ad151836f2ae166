"""Roles of keys, and the one table of who may ask for which route.

A route that the table does not name is an administrator's, so that a new one opens nothing.
"""

import re
from enum import IntEnum

from starlette._utils import get_route_path
from starlette.routing import compile_path
from starlette.types import Scope


class Role(IntEnum):
    """What a key may do; each role may do all that the ones before it may."""

    OPEN = 0
    """The role of a request without a key. No key has it."""
    CLIENT = 1
    """Asks the model, and reads, continues, answers and deletes what its own key has made."""
    VIEW = 2
    """Also reads what was recorded and measured of everybody."""
    APPROVE = 3
    """Also answers the questions, and decides about the calls, of everybody."""
    ADMIN = 4
    """Also reads and deletes everybody's records, and commands the engine."""

    @property
    def word(self) -> str:
        """The role as the file of keys writes it."""
        return self.name.lower()


ROLES = {role.word: role for role in Role if role is not Role.OPEN}
"""The roles that a key may have, by their word."""

SOCKET = "SOCKET"
"""The method under which the table has WebSockets."""

_TABLE: dict[Role, str] = {
    Role.OPEN: """
        GET /
        GET /ui
        GET /ui/
        GET /ui/ui.js
        GET /ui/ui.css
        GET /health
        GET /ready
    """,
    Role.CLIENT: """
        POST /v1/chat/completions
        POST /v1/chat/completions/batch
        POST /v1/chat/completions/render
        POST /v1/chat/completions/derender
        POST /v1/completions
        POST /v1/completions/render
        POST /v1/completions/derender
        POST /v1/messages
        POST /v1/messages/count_tokens
        POST /v1/messages/render
        SOCKET /v1/responses
        POST /v1/responses
        POST /v1/responses/input_tokens
        POST /v1/responses/compact
        POST /v1/responses/render
        GET DELETE /v1/responses/{id}
        POST /v1/responses/{id}/cancel
        POST /v1/responses/{id}/steer
        GET /v1/responses/{id}/input_items
        POST /v1/conversations
        GET POST DELETE /v1/conversations/{id}
        GET POST /v1/conversations/{id}/items
        GET DELETE /v1/conversations/{id}/items/{item_id}
        POST /v1/sessions
        GET DELETE /v1/sessions/{id:path}
        GET /v1/sessions/{id:path}/trajectories
        GET /v1/sessions/{id:path}/traces
        POST /v1/sessions/{id:path}/complete
        GET /v1/pending
        GET /v1/pending/events
        GET POST /v1/pending/{id}
        GET /artifacts/{name:path}
        GET /v1/models
        GET /v1/models/{id:path}
        GET /version
        GET POST /ping
        POST /tokenize
        POST /detokenize
        GET /tokenizer_info
        GET /openapi.json
        GET /docs
        GET /docs/oauth2-redirect
        GET /redoc
        GET /static/{path:path}
        POST /invocations
        POST /inference/v1/generate
        POST /generative_scoring
        POST /v1/systemone
        POST /cohere/v2/chat
        POST /cohere/v2/chat/render
        POST /v1/audio/transcriptions
        POST /v1/audio/translations
        SOCKET /v1/realtime
        POST /pooling
        POST /classify
        POST /v1/embeddings
        POST /v2/embed
        POST /score
        POST /v1/score
        POST /rerank
        POST /v1/rerank
        POST /v2/rerank
    """,
    Role.VIEW: """
        GET /metrics
        GET /metrics/{path:path}
        GET /load
        GET /v1/trace
        GET /v1/trace/{id}
        GET /v1/trace/{id}/events
        GET /v1/trace/{id}/export
        GET /v1/trace/{id}/perfetto
        GET /v1/what-if
        GET /is_sleeping
        GET /is_paused
        GET /weight_info
        GET /get_world_size
        GET /kv_event_sources
        POST /is_scaling_elastic_ep
        GET /fault_tolerance/status
    """,
    Role.ADMIN: """
        PATCH DELETE /v1/trace/{id}
        POST DELETE /v1/what-if
        POST /v1/load_lora_adapter
        POST /v1/unload_lora_adapter
        POST /adapters
        DELETE /adapters/{adapter_name}
        POST /abort_requests
        POST /inference/v1/abort_requests
        POST /reset_prefix_cache
        POST /reset_mm_cache
        POST /reset_encoder_cache
        POST /collective_rpc
        GET /server_info
        POST /start_profile
        POST /stop_profile
        POST /sleep
        POST /wake_up
        POST /release_kv_cache_memory
        POST /pause
        POST /resume
        POST /init_weight_transfer_engine
        POST /shutdown_weight_transfer_engine
        POST /start_weight_update
        POST /start_draft_weight_update
        POST /update_weights
        POST /finish_weight_update
        POST /update_weight_version
        POST /weight_checker
        POST /scale_elastic_ep
        POST /fault_tolerance/apply
    """,
}
"""By the least role: the methods and the path of each route, ours and those of vLLM's server.

A key with the role `client` gets only what is its own from the routes of records, questions,
calls and files. The handlers see to that, by `Door.reach`.
"""


def least_role(scope: Scope) -> Role:
    """Return the least role that a request needs, by its method and its path."""
    found = rule_of(_method(scope), get_route_path(scope))
    return Role.ADMIN if found is None else found


def rule_of(method: str, path: str) -> Role | None:
    """Return the least role for a method and a path, or None if the table does not name them."""
    found = _PLAIN.get((method, path))
    if found is not None:
        return found
    return next((role for of, form, role in _FORMS if of == method and form.match(path)), None)


def asked_for(scope: Scope) -> str:
    """Return what a request asks for, for messages."""
    method, path = _method(scope), get_route_path(scope)
    unknown = ", which is no route that this server knows," if rule_of(method, path) is None else ""
    return f"{method} {path[:80]}{unknown}"


def _method(scope: Scope) -> str:
    if scope["type"] == "websocket":
        return SOCKET
    method = str(scope["method"])
    return "GET" if method == "HEAD" else method


def _read(
    table: dict[Role, str],
) -> tuple[dict[tuple[str, str], Role], list[tuple[str, re.Pattern[str], Role]]]:
    """Return the routes without parameters, and the patterns of the others."""
    plain: dict[tuple[str, str], Role] = {}
    forms: list[tuple[str, re.Pattern[str], Role]] = []
    for role, lines in table.items():
        for line in lines.strip().splitlines():
            *methods, path = line.split()
            for method in methods:
                if "{" in path:
                    forms.append((method, compile_path(path)[0], role))
                else:
                    plain[method, path] = role
    return plain, forms


_PLAIN, _FORMS = _read(_TABLE)
