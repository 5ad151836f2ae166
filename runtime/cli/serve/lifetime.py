"""The options of `caesura serve` that say what happens when its engine dies, and when it ends."""

from dataclasses import dataclass
from typing import Annotated

import typer

from caesura.runtime.server.listen import SHUTDOWN_SECONDS

LIFETIME = "Death and shutdown"
"""A panel of `--help`."""
ENGINE_TIMEOUT_SECONDS = 120.0
"""Longer than any step: the engine answers between two steps."""
DRAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LifetimeOptions:
    """Restarts of the engine, and the end of the server."""

    no_restart: Annotated[
        bool,
        typer.Option(
            "--no-restart",
            help="End with exit code 3 when the engine dies, instead of starting it again.",
            rich_help_panel=LIFETIME,
        ),
    ] = False
    engine_timeout: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="An engine whose process does not answer for so long is hung: it is killed and "
            "started again. 0 asks nothing.",
            rich_help_panel=LIFETIME,
        ),
    ] = ENGINE_TIMEOUT_SECONDS
    drain_delay: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="After SIGTERM the port stays open for so long, so that balancers notice that "
            "/ready says 503.",
            rich_help_panel=LIFETIME,
        ),
    ] = DRAIN_SECONDS
    shutdown_timeout: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long requests under way may take to finish when the server ends.",
            rich_help_panel=LIFETIME,
        ),
    ] = SHUTDOWN_SECONDS
