"""`caesura simulate` and `caesura replay`. They import their implementation when they run."""

from pathlib import Path
from typing import Annotated

import typer

from caesura.runtime.cli.errors import mistakes_told
from caesura.runtime.cli.options import ConfigFile, filled
from caesura.runtime.cli.plan.simulate_options import (
    ListNames,
    Out,
    ReplicaOptions,
    StudyOptions,
    WorkloadOptions,
)
from caesura.runtime.cli.trace import StoreFile


@filled
def simulate(
    load: WorkloadOptions,
    how: StudyOptions,
    replicas: ReplicaOptions,
    out: Out = Path("caesura-study"),
    names: ListNames = False,
) -> None:
    """Compare policies by simulation: the real scheduler on a simulated machine.

    Policies are names joined by commas, with settings after a colon. A comma
    before `key=value` continues the policy before it. Three policies:

    `--policy stock,caesura:ranking=ssjf,chunk_tokens=512,infercept`

    Times are simulated seconds. Ended runs are kept: the same command continues
    an interrupted study.

    Routers are compared on many replicas at one total rate. Each replica has a
    scheduler of its own:

    `--replicas 64 --router affinity,least,prefix,one-queue --rate 100`
    """
    from caesura.runtime.cli.plan import studies

    if names:
        studies.list_names()
        return
    with mistakes_told():
        studies.simulate(load, how, replicas, out)


@filled
def replay(
    how: StudyOptions,
    record: Annotated[
        Path | None,
        typer.Argument(help="A file of records, or of trajectories.", dir_okay=False),
    ] = None,
    recording: Annotated[
        str | None,
        typer.Option(
            "--recording", metavar="ID", help="Instead of a file: a recording, or `last`."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Of a recording: sessions that arrived from this time on, such as"
            " 2026-01-31T12:00, or recorded seconds.",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="A time, as for --from.")
    ] = None,
    store: StoreFile = None,
    config: ConfigFile = None,
    speed: Annotated[
        float, typer.Option(help="The factor by which sessions arrive faster than recorded.")
    ] = 1.0,
    out: Out = Path("caesura-replay"),
) -> None:
    """Simulate recorded traffic under other policies.

    Sessions are rebuilt from the records: their arrivals, their decoded tokens
    and the durations of their tools. Predictors get the recorded features, so
    that they are compared too:

    `-p caesura:prediction=history,caesura:prediction=hazard`

    `--recording 3 --from 2026-01-31T12:00 --to 2026-01-31T12:05` replays a
    stretch of what `caesura serve` has recorded. The recorded policy is then
    replayed too, as the baseline: a replay says nothing beside what was real.
    A file of records does not tell its policy; name it first with --policy.
    Of trajectories, in JSON lines or ATIF, each branch is cut where a person
    wrote to it. What sessions share is not known, as in records.
    """
    from caesura.runtime.cli import trace_shown as browsing
    from caesura.runtime.cli.plan import studies
    from caesura.runtime.cli.recordings import Span

    with mistakes_told():
        span = Span(since, until)
        records: studies.Records | None
        if recording is not None or span != Span():
            file = browsing.store_file(store, config)
            records = studies.recorded(record, file, recording or "last", span, out)
        else:
            records = None if record is None else studies.records_in(record, out)
        studies.replay(records, speed, how, out)
