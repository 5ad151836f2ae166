"""The options that commands share."""

from pathlib import Path
from typing import Annotated

import typer

from caesura.intercept.handling import HANDLINGS
from caesura.scheduler.settings import Settings

DEFAULTS = Settings()
DEFAULT_HOST_GIB = 4.0

Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Hugging Face id or directory. Default: the bundled one."),
]
Formats = Annotated[
    list[str] | None,
    typer.Option("--format", help="How it writes calls. Default: as its template says."),
]
Tools = Annotated[
    list[str] | None,
    typer.Option("--tool", "-t", help="A built-in tool; repeat for more. Default: all of them."),
]
VllmArgs = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- VLLM_OPTIONS", help="Options of `vllm serve`, behind `--`."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show vLLM's own log.")]

# -- what becomes of the KV cache of paused requests ---------------------------------------------

PAUSES = "Paused requests"
"""The panel of these in `--help`."""


def _known(name: str) -> str:
    if name not in HANDLINGS:
        raise typer.BadParameter(f"there is no {name!r}, but {', '.join(HANDLINGS)}")
    return name


Handling = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        callback=_known,
        help=f"What becomes of their KV cache: {', '.join(HANDLINGS)}.",
        rich_help_panel=PAUSES,
    ),
]
HostGib = Annotated[
    float,
    typer.Option(
        min=0, help="GiB of host memory for it; 0 switches swapping off.", rich_help_panel=PAUSES
    ),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        help="What `caesura calibrate` wrote. Default: the one in the cache, made if need be.",
        rich_help_panel=PAUSES,
    ),
]
NoCalibrate = Annotated[
    bool,
    typer.Option(
        "--no-calibrate",
        help="Never measure at the start: begin with a guess, and learn.",
        rich_help_panel=PAUSES,
    ),
]
Records = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        writable=True,
        help="Append the scheduler's records to this file, as JSON lines.",
        rich_help_panel=PAUSES,
    ),
]
PauseDeadline = Annotated[
    float,
    typer.Option(
        min=0, help="Seconds until KV is given up for good; 0 is never.", rich_help_panel=PAUSES
    ),
]
Retention = Annotated[
    float,
    typer.Option(
        min=0,
        help="Seconds that KV is kept for the follow-up of a request that ended with calls.",
        rich_help_panel=PAUSES,
    ),
]
