"""The commands that simulate, and their options; what they do is imported when they are run."""

from pathlib import Path
from typing import Annotated

import typer

from caesura.runtime.cli.errors import mistakes_told
from caesura.runtime.cli.options import (
    Baseline,
    Clients,
    Data,
    Jobs,
    ListNames,
    Machines,
    Out,
    Policies,
    Quiet,
    Rates,
    Seconds,
    Seeds,
    Trace,
    WarmUp,
    Window,
    WorkloadName,
)


def simulate(
    workload: WorkloadName = "mix",
    data: Data = None,
    policy: Policies = None,
    rate: Rates = None,
    clients: Clients = "",
    seconds: Seconds = 180.0,
    seeds: Seeds = "3",
    machine: Machines = None,
    window: Window = None,
    warm_up: WarmUp = None,
    baseline: Baseline = None,
    out: Out = Path("caesura-study"),
    jobs: Jobs = 0,
    quiet: Quiet = False,
    trace: Trace = False,
    names: ListNames = False,
) -> None:
    """Compare policies by simulation: the very scheduler that serves, on a machine that is not.

    Policies are names joined by commas, with settings behind a colon; a comma
    that `key=value` follows goes on with the policy before it. Three policies:

    `--policy stock,caesura:ranking=ssjf,chunk_tokens=512,infercept`

    Times are simulated seconds. Runs are kept as they end: a study that was
    interrupted goes on with the same command.
    """
    from caesura.runtime.cli.simulate import run as command

    if names:
        command.list_names()
        return
    how = command.How(policy, machine, seeds, window, warm_up, baseline, out, jobs, quiet, trace)
    with mistakes_told():
        command.simulate(workload, data, rate or [], clients, seconds, how)


def replay(
    record: Annotated[
        Path, typer.Argument(help="What `caesura serve --records` has written.", dir_okay=False)
    ],
    policy: Policies = None,
    machine: Machines = None,
    speed: Annotated[
        float, typer.Option(help="Sessions arrive so many times as fast as they did.")
    ] = 1.0,
    window: Window = None,
    warm_up: WarmUp = None,
    baseline: Baseline = None,
    out: Out = Path("caesura-replay"),
    jobs: Jobs = 0,
    quiet: Quiet = False,
    trace: Trace = False,
) -> None:
    """Simulate traffic that was served: what would other policies have made of it?

    Sessions are rebuilt from the records: who came when, what was decoded, how
    long tools took.
    """
    from caesura.runtime.cli.simulate import replay as command
    from caesura.runtime.cli.simulate.run import How

    with mistakes_told():
        how = How(policy, machine, "1", window, warm_up, baseline, out, jobs, quiet, trace)
        command.replay(record, speed, how)
