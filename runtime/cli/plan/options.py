"""The options of `caesura plan` and `caesura run`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from caesura.planning.run.backends import BACKENDS
from caesura.planning.run.host import DRAIN_SECONDS, MAX_IN_FLIGHT
from caesura.planning.search.planner import DRAWS
from caesura.planning.search.strategies import STRATEGIES
from caesura.runtime.cli.options import TRACES, TraceFile, Traces

SEARCH, ENGINES = "Search", "Engines"
"""Panels of `--help`."""

MAX_DRAWS = 100

ApplicationFile = Annotated[
    Path,
    typer.Argument(
        metavar="APPLICATION", help="A TOML or YAML file: docs/guides/planning.md.", dir_okay=False
    ),
]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices", "-n", min=1, help="How many devices a plan may use. Default: the file's."
    ),
]
CostsFile = Annotated[
    Path | None,
    typer.Option(
        "--costs",
        metavar="FILE",
        dir_okay=False,
        help="What was measured on this machine: steps, memory, loading. Default: the user's file.",
    ),
]
GanttFile = Annotated[
    Path | None,
    typer.Option(
        "--gantt", metavar="FILE", dir_okay=False, help="Draw devices over time: .svg or .html."
    ),
]


def _backend(name: str) -> str:
    if name not in BACKENDS:
        known = ", ".join(BACKENDS)
        raise typer.BadParameter(f"unknown backend {name!r}; choose from: {known}")
    return name


def _strategy(name: str) -> str:
    if name not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise typer.BadParameter(f"unknown strategy {name!r}; choose from: {known}")
    return name


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan is searched for."""

    devices: Devices = None
    costs: CostsFile = None
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            "-s",
            metavar="NAME",
            callback=_strategy,
            help=f"{', '.join(STRATEGIES)}. `greedy` is SamuLLM's search, `max` and `min` its"
            " heuristics.",
            rich_help_panel=SEARCH,
        ),
    ] = "best"
    seed: Annotated[
        int | None,
        typer.Option(
            help="Of the drawn output lengths. Default: the file's.", rich_help_panel=SEARCH
        ),
    ] = None
    draws: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_DRAWS,
            help="Draws of all output lengths with which plans are checked.",
            rich_help_panel=SEARCH,
        ),
    ] = DRAWS
    search_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="End the search after so long. The plan then depends on the machine's speed.",
            rich_help_panel=SEARCH,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class RunTraces:
    """Whether a run is recorded for the page, and in which file."""

    file: TraceFile = None
    off: Annotated[
        bool, typer.Option("--no-trace", help="Record no traces.", rich_help_panel=TRACES)
    ] = False

    def check(self) -> None:
        """Raise `UsageError` for invalid options, before an engine starts."""
        Traces(self.file, self.off).check()


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What a plan is carried out on."""

    panel: ClassVar = ENGINES

    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            callback=_backend,
            help=f"What holds the engines: {', '.join(BACKENDS)}.",
        ),
    ] = "processes"
    sleep_level: Annotated[
        int,
        typer.Option(
            min=0,
            max=2,
            help="What an engine gives up with --backend sleep: 0 the KV cache, 1 the weights too,"
            " kept in the host's memory, 2 both, so that weights are read again.",
        ),
    ] = 1
    logs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Where the engines' logs go. Default: beside the results.",
        ),
    ] = None
    in_flight: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="The most requests that one engine is sent at a time."
        ),
    ] = MAX_IN_FLIGHT
    drain_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long an engine that is given up may work on its requests. Those left begin"
            " again elsewhere.",
        ),
    ] = DRAIN_SECONDS
