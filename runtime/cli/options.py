"""The options that commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from caesura.intercept.calls.formats import NAMES
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.storage.database import may_be_one

DEFAULT_HOST_GIB = 4.0

PAUSES = "Paused requests"
TRACES = "Traces"
"""Panels of `--help`."""

Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Hugging Face id or directory. Default: the bundled one."),
]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help=f"How it writes calls: {', '.join(NAMES)}. Default: as its template says.",
    ),
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        "-t",
        help="A built-in tool or an MCP server of the configuration; repeat for more. Default: all"
        " that are on.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Which tools are on, and how they are set. Default: ./caesura.toml, else"
        " ~/.config/caesura/caesura.toml.",
    ),
]
VllmArgs = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- VLLM_OPTIONS", help="Options of `vllm serve`, behind `--`."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show vLLM's own log.")]
HostGib = Annotated[
    float,
    typer.Option(
        min=0, help="GiB of host memory for it; 0 switches swapping off.", rich_help_panel=PAUSES
    ),
]
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


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model answers and how it writes calls, the configuration, and what vLLM is told."""

    vllm_args: VllmArgs = None
    model: Model = None
    config: ConfigFile = None
    format: Formats = None


@dataclass(frozen=True, slots=True)
class Traces:
    """Whether a command records traces, in which file, and whether with what is said."""

    file: TraceFile = None
    off: Annotated[
        bool, typer.Option("--no-trace", help="Record no traces.", rich_help_panel=TRACES)
    ] = False
    content: Annotated[
        bool,
        typer.Option(
            "--trace-content",
            help="Record what users, models and tools say, too.",
            rich_help_panel=TRACES,
        ),
    ] = False

    def check(self) -> None:
        """Find mistakes that do not take an engine to find; raises `UsageError`."""
        if self.off and (self.file is not None or self.content):
            raise UsageError("--no-trace records nothing: leave it, or --trace, out")
        if self.file is not None and not self.file.absolute().parent.is_dir():
            raise UsageError(f"there is no directory {self.file.absolute().parent}")
        if self.file is not None and not may_be_one(self.file):
            raise UsageError(f"{self.file} is no file of traces: name another, or move it away")
