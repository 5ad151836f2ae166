"""The settings of one server, from the command line to where they are used."""

from collections.abc import Collection
from dataclasses import dataclass, field

from caesura.runtime.errors import UsageError
from caesura.runtime.run.limits import Limits
from caesura.runtime.server.http.access_log import AccessLogForm
from caesura.runtime.server.http.sockets import SocketLimits
from caesura.runtime.server.keys.access import ApiKeys
from caesura.runtime.tracing.who import UserForm

SHUTDOWN_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The address of a server, who may use it, and how much of it.

    Raises `UsageError` for a number that is not positive.
    """

    host: str = "127.0.0.1"
    """Requests may address the server by this name too."""
    port: int = 8000
    """0 picks a free one."""
    server_name: str | None = None
    """The name of one of several servers, which every answer then has in a header."""

    api_key: ApiKeys = None
    """One key or several. Without one, a request must address an IP address, `localhost` or one of
    `allowed_hosts`."""
    shared_prefix_cache: bool = False
    """Whether several keys share their caches of prompts."""
    allowed_hosts: Collection[str] = ()
    allowed_origins: Collection[str] = ()
    """The origins of pages that may read answers (CORS)."""
    allow_private: bool = False
    """Whether media may come from private addresses."""

    limits: Limits = field(default_factory=Limits)
    """Bounds of each run."""
    max_concurrent: int = 1024
    """The most requests under way."""
    client_max_size: int = 16 * 2**20
    """The most bytes of a body."""
    keep_alive_seconds: float = 15.0
    """The longest silence of a stream."""
    sockets: SocketLimits = field(default_factory=SocketLimits)
    """Bounds of connections."""
    access_log: AccessLogForm = "off"
    """How a line on stderr tells of each request, if at all."""
    public_url: str = ""
    """The address of the server for those who read spans and headers: they link to its page."""
    users: UserForm = "plain"
    """How the records and spans of runs name the user of a request."""

    drain_delay: float = 0.0
    """How long the port stays open after SIGTERM, so that balancers notice the end."""
    shutdown_timeout: float = SHUTDOWN_SECONDS
    """How long requests under way may take to finish after the first signal."""

    def __post_init__(self) -> None:
        if self.max_concurrent < 1 or self.client_max_size < 1 or self.keep_alive_seconds <= 0:
            raise UsageError(
                "max_concurrent, client_max_size and keep_alive_seconds must be positive, got "
                f"{self.max_concurrent}, {self.client_max_size} and {self.keep_alive_seconds:g}"
            )
