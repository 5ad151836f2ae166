"""`caesura trace`: recordings in the terminal and as files."""

from pathlib import Path
from typing import Annotated

import typer

from caesura.runtime.cli.errors import mistakes_told
from caesura.runtime.cli.options import ConfigFile

app = typer.Typer(
    help="Show and export recordings: runs, pauses, and the decisions about their KV cache.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

StoreFile = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="The file of recordings. Default: the configured file, else the user's own.",
    ),
]
Recording = Annotated[
    str, typer.Argument(metavar="ID", help="The recording; `last` is the newest.")
]
Recordings = Annotated[
    list[str], typer.Argument(metavar="ID", help="The recordings; `last` is the newest.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Records = Annotated[
    list[Path] | None,
    typer.Option(
        "--records",
        metavar="FILE",
        help="A file of `caesura serve --records`, or JSON lines of an export; repeatable.",
    ),
]


@app.command("ls")
def list_recordings(
    recording: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="A recording, to list its runs."),
    ] = None,
    store: StoreFile = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """List recordings, the newest first, or the runs and sessions of one."""
    from caesura.runtime.cli import trace_shown as browsing

    with mistakes_told():
        browsing.show_list(browsing.store_file(store, config), recording, as_json)


@app.command()
def show(
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The id of a run, session, response or trace, or the beginning of it.",
        ),
    ],
    recording: Annotated[
        str | None,
        typer.Option(
            "--recording", metavar="ID", help="The recording. Default: the newest with this id."
        ),
    ] = None,
    store: StoreFile = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show one run or session: its turns, calls and pauses, with predictions and outcomes."""
    from caesura.runtime.cli import trace_shown as browsing

    with mistakes_told():
        browsing.show_one(browsing.store_file(store, config), recording, wanted, as_json)


@app.command()
def predictions(
    recording: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The recording. Default: the newest."),
    ] = None,
    records: Records = None,
    store: StoreFile = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show how good each predictor was: errors, order and calibration, by what it predicts.

    Each forecast of a segment is compared with what came: its tokens, the
    duration of the next pause, and the calls until the session ended.
    """
    from caesura.runtime.cli import recordings as files
    from caesura.runtime.cli import trace_shown as browsing

    with mistakes_told():
        file = browsing.store_file(store, config)
        files.show_predictions(file, recording, records or [], as_json)


@app.command()
def export(
    recordings: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="The recordings. Default: the newest."),
    ] = None,
    records: Records = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The file to write; its suffix sets the format."),
    ] = Path("trace.html"),
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="html, json, jsonl, perfetto or atif."),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="ID",
            help="A session, run or answer, for a trajectory in ATIF.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="A time such as 2026-01-31T12:00, or recorded seconds."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="A time, as for --from.")
    ] = None,
    last: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="The last span, such as 90s, 10m, 2h or 1d."),
    ] = None,
    store: StoreFile = None,
    config: ConfigFile = None,
) -> None:
    """Write recordings to a file: a standalone HTML page, JSON, or a trace for Perfetto.

    With --session: one session as a trajectory in ATIF, with the texts that were recorded.
    """
    from caesura.runtime.cli import recordings as files
    from caesura.runtime.cli import trace_shown as browsing

    with mistakes_told():
        place, span = browsing.store_file(store, config), files.Span(since, until, last)
        chosen = files.Chosen(place, recordings or [], records or [], span)
        if session is not None:
            files.export_session(chosen, output, form, session)
        else:
            files.export(chosen, output, form, config)


@app.command()
def query(
    sql: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="One SELECT. Default: list the tables and columns."),
    ] = None,
    store: StoreFile = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Run SQL on the recordings; it can only read.

    `spans`, `pauses`, `sessions` and `http` have a row for each of these, of
    all recordings. `recordings` and `entries` are the tables of the file.
    """
    from caesura.runtime.cli import recordings as files
    from caesura.runtime.cli import trace_shown as browsing

    with mistakes_told():
        files.show_query(browsing.store_file(store, config), sql, as_json)


@app.command()
def name(
    recording: Recording,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What it is called from now on.")],
    store: StoreFile = None,
    config: ConfigFile = None,
) -> None:
    """Give a recording another title."""
    from caesura.runtime.cli import recordings as files
    from caesura.runtime.cli import trace_shown as browsing

    with mistakes_told():
        files.name(browsing.store_file(store, config), recording, title)


@app.command()
def note(
    recording: Recording,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="The note; an empty one removes it. Default: print."),
    ] = None,
    store: StoreFile = None,
    config: ConfigFile = None,
) -> None:
    """Set the note of a recording, or print it."""
    from caesura.runtime.cli import recordings as files
    from caesura.runtime.cli import trace_shown as browsing

    with mistakes_told():
        files.note(browsing.store_file(store, config), recording, text)


@app.command()
def pin(recordings: Recordings, store: StoreFile = None, config: ConfigFile = None) -> None:
    """Keep recordings whatever the bounds on the file's size and age."""
    from caesura.runtime.cli import recordings as files
    from caesura.runtime.cli import trace_shown as browsing

    with mistakes_told():
        files.pin(browsing.store_file(store, config), recordings, pinned=True)


@app.command()
def unpin(recordings: Recordings, store: StoreFile = None, config: ConfigFile = None) -> None:
    """Let recordings be deleted for room or age again."""
    from caesura.runtime.cli import recordings as files
    from caesura.runtime.cli import trace_shown as browsing

    with mistakes_told():
        files.pin(browsing.store_file(store, config), recordings, pinned=False)


@app.command()
def rm(recordings: Recordings, store: StoreFile = None, config: ConfigFile = None) -> None:
    """Delete recordings that have ended, pinned ones too."""
    from caesura.runtime.cli import recordings as files
    from caesura.runtime.cli import trace_shown as browsing

    with mistakes_told():
        files.delete(browsing.store_file(store, config), recordings)
