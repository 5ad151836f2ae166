"""Errors that an engine may raise; `caesura.runtime.errors` shows the whole tree."""

import os


class CaesuraError(Exception):
    """Base of every error that Caesura raises on purpose."""


class UsageError(CaesuraError):
    """The caller made a mistake; the message says how to fix it."""


class ContextOverflow(CaesuraError):
    """The conversation no longer fits the model's context window.

    `tokens` are those of the conversation, and `window` the most that fit, where both are known.
    """

    def __init__(self, message: str, tokens: int | None = None, window: int | None = None) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.window = window


class EngineFailed(CaesuraError):
    """The engine died or refused to start."""


class EngineDied(EngineFailed):
    """The engine's process died; its sessions go on if it starts again."""


class RepeatedDeaths(EngineFailed):
    """Processes died again and again under one session, which may be the cause."""


class RequestFailed(CaesuraError):
    """The engine lives, and ended one request before its turn did."""


class RequestAborted(RequestFailed):
    """The engine's operator aborted the request, for example by pausing the engine."""


def refuse_forked(started_in: int) -> None:
    """Raise `UsageError` in a process that was forked from the one that started an engine.

    The engine's sockets and threads stay with the process `started_in`. A call would wait for
    ever for a reply that the other process reads.
    """
    if os.getpid() != started_in:
        raise UsageError(
            f"process {os.getpid()} was forked from process {started_in} after that had started"
            " an engine, and can use neither that engine nor one of its own: start processes with"
            ' multiprocessing.get_context("spawn"), or fork before the first run'
        )
