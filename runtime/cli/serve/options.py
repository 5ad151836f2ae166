"""The options of what serves and of what is recorded."""

from pathlib import Path
from typing import Annotated

import typer

ServedName = Annotated[
    str | None, typer.Option(help="The model's name for clients. Default: from --model.")
]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on.")]
ApiKey = Annotated[
    str | None, typer.Option(envvar="CAESURA_API_KEY", help="Key that clients must send.")
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        help="Without a key: a further name of this server in requests, repeatable. "
        "IP addresses, localhost and --host need no mention.",
    ),
]
MaxConcurrent = Annotated[int, typer.Option(help="Requests in flight before a 429.")]

TRACES = "Traces"
"""The panel of these in `--help`."""

TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        dir_okay=False,
        help="Record traces in this file, which `caesura trace` reads.",
        rich_help_panel=TRACES,
    ),
]
NoTrace = Annotated[
    bool, typer.Option("--no-trace", help="Record no traces.", rich_help_panel=TRACES)
]
TraceContent = Annotated[
    bool,
    typer.Option(
        "--trace-content",
        help="Record what users, models and tools say, too.",
        rich_help_panel=TRACES,
    ),
]
