"""`caesura trace`: what was recorded, in the terminal and as files."""

from pathlib import Path
from typing import Annotated

import typer

from caesura.runtime.cli.errors import mistakes_told
from caesura.runtime.cli.options import ConfigFile

app = typer.Typer(
    help="See what was recorded: runs, pauses, and why their KV cache was kept or not.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

StoreFile = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="The file of recordings. Default: as configured, else the user's own.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
Records = Annotated[
    list[Path] | None,
    typer.Option(
        "--records",
        metavar="FILE",
        help="A file of `caesura serve --records`, or JSON lines of an export; repeat for more.",
    ),
]


@app.command("ls")
def list_recordings(
    recording: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="A recording, whose runs are listed then."),
    ] = None,
    store: StoreFile = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """List recordings, the newest first, or the runs and sessions of one."""
    from caesura.runtime.cli.trace import show as browsing

    with mistakes_told():
        browsing.show_list(browsing.store_file(store, config), recording, as_json)


@app.command()
def show(
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A run or a session, or the beginning of its id; also a response's or a trace's.",
        ),
    ],
    recording: Annotated[
        str | None,
        typer.Option(
            "--recording", metavar="ID", help="Where it is. Default: the newest that has it."
        ),
    ] = None,
    store: StoreFile = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show one run or session: turns, calls, pauses, what was expected, and what it came to."""
    from caesura.runtime.cli.trace import show as browsing

    with mistakes_told():
        browsing.show_one(browsing.store_file(store, config), recording, wanted, as_json)


@app.command()
def export(
    recordings: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Which recordings. Default: the newest."),
    ] = None,
    records: Records = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="File to write; its suffix says the format."),
    ] = Path("trace.html"),
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="html, json, jsonl or perfetto."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="2026-01-31T12:00, or seconds as recorded."),
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="As --from.")] = None,
    last: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="Only the last 90s, 10m, 2h or 1d."),
    ] = None,
    store: StoreFile = None,
    config: ConfigFile = None,
) -> None:
    """Write recordings to a file: a page that needs nothing else, data, a trace for Perfetto."""
    from caesura.runtime.cli.trace import export as exporting
    from caesura.runtime.cli.trace import show as browsing

    with mistakes_told():
        exporting.export(
            browsing.store_file(store, config),
            recordings or [],
            records or [],
            output,
            form,
            exporting.Span(since, until, last),
            config,
        )
