"""The options of `caesura simulate` and `caesura replay`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

COUNTED = "What is counted"
RUNNING = "How it is run"
"""Panels of `--help`."""

ListNames = Annotated[
    bool, typer.Option("--list", help="Show workloads, machines and policies, and stop.")
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        file_okay=False,
        help="Where the report goes, and its runs: what is there is not run again.",
        rich_help_panel=RUNNING,
    ),
]


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """What sessions do, how they arrive, and how often that is drawn."""

    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            "-w",
            metavar="WORKLOAD",
            help="What sessions do and how they arrive: `mix`, `mix:tools=qa+image`, ...",
        ),
    ] = "mix"
    data: Annotated[Path | None, typer.Option(help="The file that the workload is read from.")] = (
        None
    )
    rates: Annotated[
        list[str] | None,
        typer.Option("--rate", metavar="RATE,...", help="Sessions per second. Default: 1,2."),
    ] = None
    clients: Annotated[
        str,
        typer.Option(
            metavar="COUNT,...",
            help="Instead of a rate: so many clients send a session when their last has ended.",
        ),
    ] = ""
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="The span in which sessions arrive.")
    ] = 180.0
    seeds: Annotated[
        str, typer.Option(metavar="SEEDS", help="`5` is 0 to 4; `31-35` and `1,4,9` are those.")
    ] = "3"


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """What is compared, what is counted, and how the runs are made."""

    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="POLICY,...",
            help="What is compared; see above. Repeat for more. Default: stock,caesura.",
        ),
    ] = None
    machines: Annotated[
        list[str] | None,
        typer.Option(
            "--machine",
            metavar="MACHINE",
            help="What is simulated, a model on a device; `NAME:link=8,host=64` changes its link"
            " (GB/s) and host memory (GB). `calibration:path=FILE,...` is your own. Repeat for"
            " more. Default: gptj-6b-a100-40g.",
        ),
    ] = None
    window: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Cut runs off after so many simulated seconds. Default: all sessions end.",
            rich_help_panel=COUNTED,
        ),
    ] = None
    warm_up: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Sessions that arrive before are not counted. Default: a sixth of the arrivals'"
            " span.",
            rich_help_panel=COUNTED,
        ),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The policy that the others are compared with, by seed; `none`: no comparison."
            " Default: the first.",
            rich_help_panel=COUNTED,
        ),
    ] = None
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            "-j",
            min=0,
            help="Runs at a time, each in a process; 0: as many as there are cores.",
            rich_help_panel=RUNNING,
        ),
    ] = 0
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel=RUNNING)
    ] = False
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Also write what each policy did with every request, at the first load:"
            " trace.html.",
            rich_help_panel=RUNNING,
        ),
    ] = False
