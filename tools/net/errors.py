"""Errors of HTTP requests. Their messages name only the host: the rest may hold secrets."""

from caesura.tools.errors import Permanent, ToolError, Unavailable


class HttpError(ToolError):
    """A request failed. The message is one line for the model."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.status = status
        """The status code of the answer, if there was one."""


class HttpRefused(HttpError, Permanent):
    """A retry will not help: a refused address, a wrong answer, an answer that is too long."""


class HttpUnavailable(HttpError, Unavailable):
    """A later retry may help: no connection, no answer in time, a busy server."""
