"""How agents name their sessions: which header, or which field of a body, tells what.

Each agent has names of its own for the same three things. A session is one chain of turns. A thread
is a chain within a session, such as a sub-agent's. A parent is the session that started another.
`DIALECTS` is the one table of them; docs/reference/requests.md shows it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from caesura.scheduler.programs import (
    MAX_NAME_CHARACTERS,
    NO_ORIGIN,
    PARENT,
    SESSION,
    SESSION_FINAL,
    Origin,
)

FINAL = (SESSION_FINAL, "X-Dynamo-Session-Final")
"""Ours, and that of NVIDIA Dynamo's clients."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_BEHIND = re.compile(r"/(?:s|v1/sessions)/(.+?)/v1/(?:v1/)?")
"""The base URL of a session: ours, and that of rLLM's gateway, whose clients write it themselves.

Anthropic's clients write another `/v1` behind theirs.
"""
GATEWAY = "caesura.gateway"
"""Where a request's scope holds the name of the session whose base URL it has, and the session."""
_IN_USER = "_session_"
"""What stands before the session in the `metadata.user_id` of older releases of Claude Code."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The headers of one kind of client. The first of `session` that a request has counts.

    A request that also has the header `thread` is of a thread within the session. Its parent is
    the one that the header `parent` names, or else the session.
    """

    clients: str
    session: tuple[str, ...]
    parent: str
    thread: str = ""
    within: bool = False
    """Whether threads are unique only within their session."""

    def read(self, told: Mapping[str, str]) -> Origin:
        """Return the session and the parent that headers name; keys are in lower case."""
        names = (told.get(header.lower(), "").strip() for header in self.session)
        session = next(filter(None, names), "")
        thread = told.get(self.thread.lower(), "").strip()
        parent = told.get(self.parent.lower(), "").strip()
        if not thread or thread == session:
            return Origin("", session, parent)
        if self.within and session:
            thread = f"{session}/{thread}"
            parent = parent and f"{session}/{parent}"
        return Origin("", thread, parent or session)


OWN = Dialect("any client", (SESSION,), PARENT)
CODEX = Dialect("Codex", ("session-id", "session_id"), "x-codex-parent-thread-id", "thread-id")
DIALECTS = (
    Dialect("NVIDIA Dynamo", ("X-Dynamo-Session-ID",), "X-Dynamo-Parent-Session-ID"),
    Dialect(
        "Claude Code",
        ("X-Claude-Code-Session-Id",),
        "X-Claude-Code-Parent-Agent-Id",
        "X-Claude-Code-Agent-Id",
        within=True,
    ),
    CODEX,
    Dialect(
        "OpenCode, verifiers, Ray Serve, vLLM's router", ("X-Session-ID",), "X-Parent-Session-ID"
    ),
)
"""The dialects, the most certain first: the first that names a session is read."""


def named_by(headers: Mapping[str, str]) -> Origin:
    """Return the session and the parent that the headers of a request name.

    Our own headers come before those of any dialect, each for itself. They are as they were sent;
    other names count only with at most `MAX_NAME_CHARACTERS`.
    """
    told = {name.lower(): text for name, text in headers.items()}
    own = OWN.read(told)
    found = next((each for each in _read(told) if each.session), NO_ORIGIN)
    return Origin("", own.session or found.session, own.parent or found.parent)


def session_in(path: str) -> tuple[str, str] | None:
    """Return the session whose base URL a path begins with, and the path behind it, or None."""
    found = _BEHIND.match(path)
    return None if found is None else (found[1], f"/v1/{path[found.end() :]}")


def is_final(headers: Mapping[str, str]) -> bool:
    """Return whether the headers of a request say that its session ends with it."""
    told = {name.lower(): text for name, text in headers.items()}
    return any(told.get(name.lower(), "").strip().lower() == "true" for name in FINAL)


def named_in(fields: Mapping[str, Any]) -> Origin:
    """Return the session and the parent that the fields of a body name.

    Codex repeats its headers in `client_metadata`. Claude Code has its session in
    `metadata.user_id`. A `prompt_cache_key` is a session's where it holds a UUID: OpenAI's clients
    may also share one among all requests that begin alike.
    """
    if isinstance(told := fields.get("client_metadata"), Mapping):
        spelled = {str(name).lower().replace("_", "-"): text for name, text in told.items()}
        found = _bounded(CODEX.read({n: t for n, t in spelled.items() if isinstance(t, str)}))
        if found.session:
            return found
    about = fields.get("metadata")
    user = about.get("user_id") if isinstance(about, Mapping) else None
    names = (_session_of(user), _unique(fields.get("prompt_cache_key")))
    return _bounded(Origin("", next(filter(None, names), "")))


def user_in(fields: Mapping[str, Any]) -> str:
    """Return the user that the fields of a body name: OpenAI's `user`, or Anthropic's."""
    about = fields.get("metadata")
    told = fields.get("user") or (about.get("user_id") if isinstance(about, Mapping) else None)
    return (without_session(told) or "") if isinstance(told, str) else ""


def without_session(user: str | None) -> str | None:
    """Return a user without the session that Claude Code puts behind it."""
    if not _session_of(user) or user is None:
        return user
    if user.startswith("{"):
        return json.dumps({k: v for k, v in json.loads(user).items() if k != "session_id"})
    return user.rpartition(_IN_USER)[0]


def _read(told: Mapping[str, str]) -> list[Origin]:
    return [_bounded(dialect.read(told)) for dialect in DIALECTS]


def _bounded(origin: Origin) -> Origin:
    """Return an origin without the names that are too long."""
    session, parent = (
        name if len(name) <= MAX_NAME_CHARACTERS else "" for name in (origin.session, origin.parent)
    )
    return Origin("", session, parent)


def _session_of(user: object) -> str:
    """Return the session within Claude Code's `metadata.user_id`, or an empty text."""
    if not isinstance(user, str):
        return ""
    if user.startswith("{"):
        try:
            told = json.loads(user)
        except (ValueError, RecursionError):
            return ""
        found = told.get("session_id") if isinstance(told, dict) else None
        return found if isinstance(found, str) else ""
    return _unique(user.rpartition(_IN_USER)[2]) if _IN_USER in user else ""


def _unique(key: object) -> str:
    """Return a name that holds a UUID, or an empty text for anything else."""
    return key if isinstance(key, str) and _UUID.search(key) else ""
