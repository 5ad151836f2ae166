"""What goes wrong with a request. The messages name the host only: the rest may hold secrets."""

from caesura.tools.errors import Permanent, ToolError, Unavailable


class HttpError(ToolError):
    """A request brought nothing. The message is one line for the model."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.status = status
        """What the server answered, if it did."""


class HttpRefused(HttpError, Permanent):
    """Trying again will not help: a refused address, a wrong answer, an answer too large."""


class HttpUnavailable(HttpError, Unavailable):
    """Trying again later may help: no connection, no answer in time, a busy server."""
