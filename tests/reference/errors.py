"""The public exceptions, and the codes of HTTP errors, with what to do about each."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import caesura
from tests.reference.markdown import code, first_line, page, table

ROOT = Path(__file__).parents[2]
ABOUT = (
    "An error says what is wrong, names the value that was given, and says how to mend it. A"
    " failing tool is none of these: its error is a result, and the model reads it."
)
EXCEPTIONS: Mapping[str, str] = {
    "CaesuraError": "Catch it to catch all of the others.",
    "UsageError": "Mend the call: the message says what to write instead.",
    "ContextOverflow": "Shorten the conversation, or begin a new session.",
    "LimitReached": "Raise the field of `Limits` that `limit` names, or ask for less.",
    "InvalidOutput": "Simplify the type, or allow more tries; `text` is what the model wrote last.",
    "EngineFailed": "Look into vLLM's log (`--verbose`), and start the engine again.",
    "RequestFailed": "Ask again; if it fails again, look into the engine's log.",
    "RequestAborted": "Ask again once the engine is resumed.",
}
CODES: Mapping[str, tuple[str, str]] = {
    "approval_not_pending": ("409", "The call was decided already, or it has ended."),
    "artifact_not_found": ("404", "The file was deleted, or belongs to another key: make it anew."),
    "being_recorded": ("409", "End the recording's server first."),
    "compaction_failed": ("500", "Ask again, or send a shorter conversation."),
    "context_length_exceeded": ("400", "Shorten the conversation: the message names both sizes."),
    "conversation_not_found": ("404", "Create a conversation, or name one of this key's."),
    "engine_failed": ("503", "The engine is given up: start the server again, and see its log."),
    "engine_loading": ("503", "Ask again after `Retry-After`: the model is being loaded."),
    "engine_restarting": ("503", "Ask again after `Retry-After`: the engine is started again."),
    "host_not_allowed": ("403", "Give the server's name with `--allowed-host`."),
    "idempotency_key_reused": ("422", "Take a new key for another body."),
    "invalid_api_key": ("401", "Send a key, as a bearer token or as `x-api-key`."),
    "invalid_output": ("422", "Ask again, or otherwise: the answer did not fit the agent's type."),
    "item_not_found": ("404", "Name an item of this conversation."),
    "journal": ("503", "Ask again: the journal cannot be written now."),
    "method_not_allowed": ("405", "Use a method that the header `Allow` names."),
    "model_not_found": ("404", "Name a model of `GET /v1/models`."),
    "not_available": ("404, 503", "The recording cannot be read now, or not in this form."),
    "not_built": ("404", "Build the page: `make ui`."),
    "not_found": ("404", "The item was deleted, or belongs to another key."),
    "not_pending": ("409", "The item was answered already, or it has expired."),
    "not_recorded": ("404", "Start the server without `--no-trace`."),
    "origin_not_allowed": ("403", "Give the page's origin with `--allowed-origin`."),
    "previous_response_not_found": ("400", "Send the whole conversation."),
    "queue_too_long": ("429", "Ask again after `Retry-After`."),
    "rate_limit_exceeded": ("429", "Ask again after `Retry-After`: the key's minute is used up."),
    "recording_not_found": ("404", "Name a recording of `GET /v1/trace`."),
    "repeated_deaths": ("422", "Do not ask the same again: the engine died of it several times."),
    "request_aborted": ("503", "Ask again once the engine is resumed."),
    "request_failed": ("500", "Ask again; if it fails again, see the server's log."),
    "request_timeout": ("408", "Send headers and body more quickly."),
    "request_too_large": ("413, 429", "Send less, or ask again later."),
    "response_cancel_not_active": ("409", "The response has ended: there is nothing to cancel."),
    "response_not_found": ("404", "The response was deleted, not stored, or is another key's."),
    "role_needed": ("403", "Use a key with the role that the message names."),
    "server_shutting_down": ("503", "Ask again: another server, or this one once it is back."),
    "server_stopped": ("500", "The run ended with its server: ask again."),
    "session_completed": ("410", "Begin another session."),
    "session_not_found": ("404", "The session was deleted, is too old, or is another key's."),
    "store": ("503", "Ask again: stored responses cannot be read now."),
    "thread_unsupported_request": ("400", "Send all messages instead of a `thread`."),
    "too_many_connections": ("503", "Close connections, or raise `--max-connections`."),
    "too_many_requests": ("429", "Ask again after `Retry-After`."),
    "trajectories_off": ("404", "Start the server with `--trajectories`."),
    "trajectory_incomplete": ("409", "The message says which tokens are not known."),
    "unknown_tool": ("400", "Name a tool that the message lists."),
    "unknown_url": ("404", "There is no such route: see [the routes](routes.md)."),
    "unsupported_media_type": ("415", "Send `Content-Type: application/json`."),
}
CODE = re.compile(r"[a-z]+(_[a-z]+)*")
WRITERS = {"code", "CODE", "OVERFLOW", "NO_THREADS", "_CODES"}
"""The keywords and names by which the server's modules write codes."""


def errors_page() -> str:
    """Return the page."""
    exceptions = [
        [
            code(name),
            getattr(caesura, name).__mro__[1].__name__,
            first_line(getattr(caesura, name)),
            said,
        ]
        for name, said in EXCEPTIONS.items()
    ]
    codes = [[code(name), status, said] for name, (status, said) in sorted(CODES.items())]
    return page(
        "Errors",
        ABOUT,
        "## In Python\n\nAll are exported from `caesura`.\n\n",
        table(("exception", "is a", "when", "what to do"), exceptions),
        "## Over HTTP\n\nThe code is `error.code` of the body. An error without a code is told by"
        " its message, and the field by `error.param`. A run that reaches a limit of its own is"
        " 422 `limit_reached`, with the limit's name as the code. Below `/v1/messages` the errors"
        " have Anthropic's form, and `error.type` follows from the status.\n\n",
        table(("code", "status", "what to do"), codes),
    )


def written_codes() -> set[str]:
    """Return the codes that the server's modules write, by their sources."""
    found: set[str] = set()
    for file in (ROOT / "runtime" / "server").rglob("*.py"):
        found.update(_written(ast.parse(file.read_text())))
    return {each for each in found if CODE.fullmatch(each)}


def _written(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="code", value=ast.Constant(value=str(text))):
                yield text
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in WRITERS:
                for each in value.values if isinstance(value, ast.Dict) else [value]:
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        yield each.value
            case ast.Call(
                func=ast.Name(id="invalid"), args=[_, _, ast.Constant(value=str(text)), *_]
            ):
                yield text
