"""The options of `caesura simulate` and `caesura replay`, and the policies that they name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from caesura.scheduler.policy.names import make_router
from caesura.simulator.policy import EPOCH_SECONDS, Fleet, Policy
from caesura.simulator.study.plan import Study, StudyError

COUNTED = "Measurement"
RUNNING = "Execution"
REPLICAS = "Replicas"
"""Panels of `--help`."""

ListNames = Annotated[
    bool, typer.Option("--list", help="Print workloads, machines and policies, and exit.")
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        file_okay=False,
        help="The folder of the report and its runs; runs in it are not repeated.",
        rich_help_panel=RUNNING,
    ),
]


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """The sessions of the workload, their arrivals, and the seeds."""

    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            "-w",
            metavar="WORKLOAD",
            help="The sessions and their arrivals: `mix`, `mix:tools=qa+image`, ...",
        ),
    ] = "mix"
    data: Annotated[Path | None, typer.Option(help="The file of the workload.")] = None
    rates: Annotated[
        list[str] | None,
        typer.Option("--rate", metavar="RATE,...", help="Sessions per second. Default: 1,2."),
    ] = None
    clients: Annotated[
        str,
        typer.Option(
            metavar="COUNT,...",
            help="Instead of a rate: the number of clients that each send session after session.",
        ),
    ] = ""
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="The span in which sessions arrive.")
    ] = 180.0
    seeds: Annotated[
        str, typer.Option(metavar="SEEDS", help="`5` means 0 to 4; also `31-35` or `1,4,9`.")
    ] = "3"


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Several replicas of the machine, and the routers to compare."""

    panel: ClassVar = REPLICAS

    replicas: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="COUNT",
            help="Serve on so many replicas of the machine; rates are those of all together.",
        ),
    ] = None
    routers: Annotated[
        list[str] | None,
        typer.Option(
            "--router",
            metavar="ROUTER,...",
            help="The routers of requests to compare, with parameters after a colon, such as"
            " `affinity:slack=4`; see --list. Repeatable. Default: affinity,least,prefix.",
        ),
    ] = None
    epoch: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="The simulated interval at which replicas tell their loads. A call that returns"
            " sooner is routed at its end. Default: 0.05.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """The policies and machines, the measurement, and the execution of runs."""

    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="POLICY,...",
            help="The policies to compare; see above. Repeatable. Default: stock,caesura.",
        ),
    ] = None
    machines: Annotated[
        list[str] | None,
        typer.Option(
            "--machine",
            metavar="MACHINE",
            help="The simulated machine: a model on a device. `NAME:link=8,host=64` changes its"
            " link (GB/s) and host memory (GB). `calibration:path=FILE,...` is your own."
            " Repeatable. Default: gptj-6b-a100-40g.",
        ),
    ] = None
    window: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Simulated seconds after which a run stops. Default: all sessions end.",
            rich_help_panel=COUNTED,
        ),
    ] = None
    warm_up: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Sessions that arrive earlier are not counted. Default: a sixth of the arrivals'"
            " span.",
            rich_help_panel=COUNTED,
        ),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The policy to compare the others with, by seed; `none` turns comparison off."
            " Default: the first policy.",
            rich_help_panel=COUNTED,
        ),
    ] = None
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="ttft=SECONDS,tpot=SECONDS",
            help="The objective of which goodput is told: seconds to the first token of every"
            " segment, and per token after it. A policy follows one with its setting:"
            " `caesura:slo=ttft=2;tpot=0.1`.",
            rich_help_panel=COUNTED,
        ),
    ] = None
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            "-j",
            min=0,
            help="Concurrent runs, each in a process; 0 means one per core. Fewer runs with"
            " replicas spread these over the processes that are left.",
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
            help="Also write each policy's handling of every request at the first load, as"
            " trace.html.",
            rich_help_panel=RUNNING,
        ),
    ] = False


ROUTERS = ("affinity,least,prefix",)


def routed(study: Study, how: StudyOptions, options: ReplicaOptions) -> Study:
    """Return the study with every policy behind every router; without --replicas it is as it was.

    Raises `StudyError` for invalid options.
    """
    if options.replicas is None:
        if options.routers or options.epoch is not None:
            given = "--router" if options.routers else "--epoch"
            raise StudyError(f"{given} needs --replicas: give their number, such as --replicas 8")
        return study
    if study.closed:
        raise StudyError(
            f"{study.workload}: clients that send session after session cannot be routed to"
            f" {options.replicas} replicas: give a workload with arrivals at a --rate"
        )
    if how.trace:
        raise StudyError(
            f"--trace shows one engine, got --replicas {options.replicas}: leave out one of the two"
        )
    epoch = EPOCH_SECONDS if options.epoch is None else options.epoch
    try:
        fleets = [
            Fleet(options.replicas, spec, epoch)
            for spec in parse_routers(options.routers or ROUTERS)
        ]
    except ValueError as error:
        raise StudyError(str(error)) from None
    alone = len(study.policies) == 1
    policies = tuple(_behind(policy, fleet, alone) for policy in study.policies for fleet in fleets)
    return replace(study, policies=policies, baseline=_baseline(how, policies))


def _behind(policy: Policy, fleet: Fleet, alone: bool) -> Policy:
    name = fleet.router if alone else f"{policy.name}, {fleet.router}"
    return replace(policy, name=name, fleet=fleet)


def _baseline(how: StudyOptions, policies: Sequence[Policy]) -> str:
    if how.baseline == "none" or (how.baseline is None and len(policies) == 1):
        return ""
    return how.baseline or policies[0].name


def parse_routers(texts: Sequence[str]) -> Iterator[str]:
    """Yield the routers of one or more texts such as `least,affinity:slack=4,prefix`.

    A comma starts the next router, unless `key=value` follows. Raises `StudyError`.
    """
    specs: list[str] = []
    for part in (part for text in texts for part in text.split(",") if part.strip()):
        if specs and "=" in part.partition(":")[0]:
            specs[-1] += f",{part.strip()}"
        else:
            specs.append(part.strip())
    for spec in specs:
        try:
            make_router(spec)
        except ValueError as error:
            raise StudyError(f"--router: {error}") from None
        yield spec


def processes_of(study: Study, jobs: int) -> int:
    """Return over how many processes the replicas of one run are spread, with `jobs` in all."""
    fleets = [policy.fleet for policy in study.policies]
    if not all(fleets):
        return 1
    return max(1, jobs // len(study.cells()))
