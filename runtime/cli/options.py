"""The options that commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from caesura.intercept.calls.formats import NAMES
from caesura.intercept.kv.handling import HANDLINGS
from caesura.scheduler.admission import ADMISSIONS
from caesura.scheduler.rank import RANKINGS
from caesura.scheduler.settings import Settings

DEFAULTS = Settings()
DEFAULT_HOST_GIB = 4.0

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

# -- who runs next --------------------------------------------------------------------------------

QUEUE = "Waiting requests"
"""The panel of these in `--help`."""


def _setting(name: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        try:
            Settings.from_mapping({name: chunk_of(value) if name == "chunk" else value})
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return value

    return check


def chunk_of(value: str) -> int | str:
    """Read `--chunk`: a number of tokens, or a word."""
    return int(value) if value.isdecimal() else value


Ranking = Annotated[
    str,
    typer.Option(
        metavar="NAME[:KEY=VALUE,...]",
        callback=_setting("ranking"),
        help=f"The order in which they are tried: {', '.join(RANKINGS)}.",
        rich_help_panel=QUEUE,
    ),
]
Admission = Annotated[
    str,
    typer.Option(
        metavar="NAME[:KEY=VALUE,...]",
        callback=_setting("admission"),
        help=f"What keeps them waiting although blocks are free: {', '.join(ADMISSIONS)}.",
        rich_help_panel=QUEUE,
    ),
]
Chunk = Annotated[
    str,
    typer.Option(
        metavar="TOKENS",
        callback=_setting("chunk"),
        help="Most query tokens of a step beside decodes; `auto` goes by the calibration, `vllm` "
        "by vLLM's own setting.",
        rich_help_panel=QUEUE,
    ),
]

# -- studies by simulation -------------------------------------------------------------------------

COUNTED = "What is counted"
RUNNING = "How it is run"

WorkloadName = Annotated[
    str,
    typer.Option(
        "--workload",
        "-w",
        metavar="WORKLOAD",
        help="What sessions do and how they arrive: `mix`, `mix:tools=qa+image`, ...",
    ),
]
Data = Annotated[Path | None, typer.Option(help="The file that the workload is read from.")]
Rates = Annotated[
    list[str] | None,
    typer.Option("--rate", metavar="RATE,...", help="Sessions per second. Default: 1,2."),
]
Clients = Annotated[
    str,
    typer.Option(
        metavar="COUNT,...",
        help="Instead of a rate: so many clients send a session when their last has ended.",
    ),
]
Seconds = Annotated[
    float, typer.Option(metavar="SECONDS", help="The span in which sessions arrive.")
]
Seeds = Annotated[
    str, typer.Option(metavar="SEEDS", help="`5` is 0 to 4; `31-35` and `1,4,9` are those.")
]
ListNames = Annotated[
    bool, typer.Option("--list", help="Show workloads, machines and policies, and stop.")
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        "-p",
        metavar="POLICY,...",
        help="What is compared; see above. Repeat for more. Default: stock,caesura.",
    ),
]
Machines = Annotated[
    list[str] | None,
    typer.Option(
        "--machine",
        metavar="MACHINE",
        help="What is simulated, a model on a device; `NAME:link=8,host=64` changes its link"
        " (GB/s) and host memory (GB). `calibration:path=FILE,...` is your own. Repeat for more."
        " Default: gptj-6b-a100-40g.",
    ),
]
Window = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Cut runs off after so many simulated seconds. Default: all sessions end.",
        rich_help_panel=COUNTED,
    ),
]
WarmUp = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Sessions that arrive before are not counted. Default: a sixth of the arrivals' span.",
        rich_help_panel=COUNTED,
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The policy that the others are compared with, by seed; `none`: no comparison."
        " Default: the first.",
        rich_help_panel=COUNTED,
    ),
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
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        min=0,
        help="Runs at a time, each in a process; 0: as many as there are cores.",
        rich_help_panel=RUNNING,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel=RUNNING)
]
Trace = Annotated[
    bool,
    typer.Option(
        "--trace",
        help="Also write what each policy did with every request, at the first load: trace.html.",
        rich_help_panel=RUNNING,
    ),
]
