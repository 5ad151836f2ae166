"""Errors that an engine may raise; `caesura.runtime.errors` shows the whole tree."""


class CaesuraError(Exception):
    """Base of every error that Caesura raises on purpose."""


class UsageError(CaesuraError):
    """The caller made a mistake; the message says how to fix it."""


class ContextOverflow(CaesuraError):
    """The conversation no longer fits the model's context window."""


class EngineFailed(CaesuraError):
    """The engine died or refused to start."""


class EngineDied(EngineFailed):
    """The engine's process died; its sessions go on if it starts again."""


class RepeatedDeaths(EngineFailed):
    """Processes died again and again under one session, which may be the cause."""


class RequestFailed(CaesuraError):
    """The engine lives, and ended one request before its turn did."""


class RequestAborted(RequestFailed):
    """Whoever runs the engine aborted the request, for example by pausing the engine."""
