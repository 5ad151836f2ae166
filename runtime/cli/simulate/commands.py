"""The commands that simulate; what they do is imported when they are run."""

from pathlib import Path
from typing import Annotated

import typer

from caesura.runtime.cli.errors import mistakes_told
from caesura.runtime.cli.fill import filled
from caesura.runtime.cli.simulate.options import ListNames, Out, StudyOptions, WorkloadOptions


@filled
def simulate(
    load: WorkloadOptions,
    how: StudyOptions,
    out: Out = Path("caesura-study"),
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
    with mistakes_told():
        command.simulate(load, how, out)


@filled
def replay(
    record: Annotated[
        Path, typer.Argument(help="What `caesura serve --records` has written.", dir_okay=False)
    ],
    how: StudyOptions,
    speed: Annotated[
        float, typer.Option(help="Sessions arrive so many times as fast as they did.")
    ] = 1.0,
    out: Out = Path("caesura-replay"),
) -> None:
    """Simulate traffic that was served: what would other policies have made of it?

    Sessions are rebuilt from the records: who came when, what was decoded, how
    long tools took.
    """
    from caesura.runtime.cli.simulate import replay as command

    with mistakes_told():
        command.replay(record, speed, how, out)
