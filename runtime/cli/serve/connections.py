"""The options of `caesura serve` that bound clients' connections."""

from dataclasses import dataclass
from typing import Annotated

import typer

from caesura.runtime.server.http.sockets import SocketLimits

CONNECTIONS = "Connections"
"""A panel of `--help`."""
DEFAULTS = SocketLimits()


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How many connections there may be, and how long each may keep the server waiting."""

    header_seconds: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds for the headers of a request.",
            rich_help_panel=CONNECTIONS,
        ),
    ] = DEFAULTS.header_seconds
    body_seconds: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds for the body of a request, and 1 more for every 16 KiB of it.",
            rich_help_panel=CONNECTIONS,
        ),
    ] = DEFAULTS.body_seconds
    idle_seconds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Seconds that a connection stays open between requests.",
            rich_help_panel=CONNECTIONS,
        ),
    ] = DEFAULTS.idle_seconds
    write_seconds: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds in which a client must read some of its answer; else its run ends.",
            rich_help_panel=CONNECTIONS,
        ),
    ] = DEFAULTS.write_seconds
    max_connections: Annotated[
        int,
        typer.Option(
            min=1,
            help="The most open connections; `ulimit -n` may allow fewer.",
            rich_help_panel=CONNECTIONS,
        ),
    ] = DEFAULTS.max_connections
    max_connections_per_address: Annotated[
        int,
        typer.Option(
            min=1,
            help="The most open connections of one address, such as that of a proxy.",
            rich_help_panel=CONNECTIONS,
        ),
    ] = DEFAULTS.max_per_address

    @property
    def limits(self) -> SocketLimits:
        """The bounds for the server."""
        return SocketLimits(
            header_seconds=self.header_seconds,
            body_seconds=self.body_seconds,
            idle_seconds=self.idle_seconds,
            write_seconds=self.write_seconds,
            max_connections=self.max_connections,
            max_per_address=self.max_connections_per_address,
        )
