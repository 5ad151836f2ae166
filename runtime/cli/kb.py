"""`caesura kb`: corpora of the user's documents, for the search tool."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from caesura.runtime.cli.errors import mistakes_told
from caesura.runtime.cli.options import ConfigFile
from caesura.tools.services import SetupError

app = typer.Typer(
    help="Manage corpora of your documents for the search tool.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
DEFAULT = "default"
OUTCOMES = ("added", "changed", "unchanged", "skipped", "removed")
SEARCHED_TOKENS = 1_000
LEFT_OUT = 10
"""The most suffixes of unsupported files that are printed."""

Name = Annotated[str, typer.Option("--corpus", metavar="NAME", help="The corpus.")]
Paths = Annotated[list[Path], typer.Argument(metavar="FILES_OR_DIRECTORIES", show_default=False)]


@app.command()
def add(
    paths: Paths,
    corpus: Name = DEFAULT,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove files of these places that no longer exist.")
    ] = False,
    title_field: Annotated[
        str, typer.Option(metavar="NAME", help="The title's field in JSON lines.")
    ] = "title",
    text_field: Annotated[
        str, typer.Option(metavar="NAME", help="The text's field in JSON lines.")
    ] = "text",
    source_field: Annotated[
        str, typer.Option(metavar="NAME", help="The address's field in JSON lines; optional.")
    ] = "url",
    config: ConfigFile = None,
) -> None:
    """Index files of text, Markdown, HTML and JSON lines that are new or changed.

    Unreadable files are reported and skipped; the exit code is then 1.
    """
    from caesura.tools.search.corpus import Corpus, files_at
    from caesura.tools.search.reading import Fields, ReadError

    console, counts, others = Console(stderr=True), Counter[str](), Counter[str]()
    fields = Fields(title_field, text_field, source_field)
    files = files_at((path for path in paths if path.exists() or not prune), others)
    with mistakes_told(), Corpus(_file(corpus, config)) as writer:
        try:
            with _bar(console, len(files)) as step:
                for path, source in files.items():
                    step.update(description=source)
                    try:
                        counts[writer.add(path, source, fields)] += 1
                    except ReadError as error:
                        counts["skipped"] += 1
                        step.tell(f"{path}: {error}")
                    step.advance()
            if prune:
                counts["removed"] = writer.prune(paths)
        finally:
            told = ", ".join(f"{counts[what]} {what}" for what in OUTCOMES if counts[what])
            passages = sum(file.passages for file in writer.files())
            typer.echo(f"{told or 'no files'}; {passages} passages in corpus {corpus!r}")
    if others:
        left = ", ".join(f"{count} {suffix}" for suffix, count in others.most_common(LEFT_OUT))
        more = ", ..." if len(others) > LEFT_OUT else ""
        typer.echo(f"left out, since their formats are not supported: {left}{more}", err=True)
    if counts["skipped"]:
        raise typer.Exit(1)


@app.command("ls")
def list_files(corpus: Name = DEFAULT, config: ConfigFile = None) -> None:
    """List the files of a corpus."""
    from caesura.tools.search.corpus import corpora, files_in, reading

    with mistakes_told():
        others = [name for name in corpora(_data(config)) if name != corpus]
        with reading(_file(corpus, config)) as connection:
            files = files_in(connection)
    table = Table(box=None, pad_edge=False)
    table.add_column("passages", justify="right")
    table.add_column("file", overflow="fold")
    for file in files:
        table.add_row(str(file.passages), escape(str(file.path)))
    Console().print(table)
    total = sum(file.passages for file in files)
    typer.echo(f"{len(files)} files, {total} passages in corpus {corpus!r}")
    if others:
        typer.echo(f"other corpora: {', '.join(others)}")


@app.command("rm")
def remove(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="FILES_OR_DIRECTORIES", show_default=False)
    ] = None,
    corpus: Name = DEFAULT,
    everything: Annotated[bool, typer.Option("--all", help="Delete the whole corpus.")] = False,
    config: ConfigFile = None,
) -> None:
    """Remove files from a corpus, or delete the corpus; the files themselves remain."""
    from caesura.tools.search.corpus import Corpus, delete_corpus

    with mistakes_told():
        path = _file(corpus, config)
        if everything == bool(paths):
            given = "both" if everything else "neither"
            raise SetupError(f"name the files to remove, or give --all; got {given}")
        if not path.exists():
            raise SetupError(f"there is no corpus {corpus!r}: `caesura kb ls` lists the corpora")
        if everything:
            delete_corpus(path)
            typer.echo(f"deleted corpus {corpus!r}")
            return
        with Corpus(path) as writer:
            count = writer.remove(paths or [])
        if not count:
            named = ", ".join(map(str, paths or ()))
            raise SetupError(f"corpus {corpus!r} holds no file of {named}: see `caesura kb ls`")
        typer.echo(f"{count} removed")


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="A few keywords.")],
    corpus: Annotated[
        str | None,
        typer.Option(
            "--corpus", metavar="NAME", help="Default: your own corpus, else the bundled one."
        ),
    ] = None,
    results: Annotated[int, typer.Option("-n", min=1, max=20, help="The most results.")] = 5,
    config: ConfigFile = None,
) -> None:
    """Search a corpus, and print the results as a model sees them."""
    from caesura.tools.search.corpus import corpus_to_search, reading, search_now
    from caesura.tools.search.results import results_text

    with mistakes_told():
        path = corpus_to_search(_data(config), corpus)
        with reading(path) as connection:
            hits = search_now(connection, query, results)
    typer.echo(results_text(query, hits, SEARCHED_TOKENS))


def _data(config: Path | None) -> Path:
    """Return the configured directory for the tools' data."""
    from caesura.tools.config.caesura_toml import Config

    return Config.load(config).services().data


def _file(corpus: str, config: Path | None) -> Path:
    """Return the file of a corpus; raise SetupError for the bundled one."""
    from caesura.tools.search.corpus import BUNDLED_CORPUS, corpus_path

    if corpus == BUNDLED_CORPUS:
        raise SetupError(f"the bundled corpus {corpus!r} cannot be changed: choose another name")
    return corpus_path(_data(config), corpus)


class _Step:
    """The progress of indexing: a bar on a terminal, elsewhere only the skipped files."""

    def __init__(self, console: Console, progress: Progress | None, total: int) -> None:
        self._console = console
        self._progress = progress
        self._task = None if progress is None else progress.add_task("", total=total)

    def update(self, description: str) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=escape(description[-40:]))

    def advance(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)

    def tell(self, problem: str) -> None:
        self._console.print(
            f"[yellow]skipped[/yellow] {escape(problem)}", highlight=False, soft_wrap=True
        )


@contextmanager
def _bar(console: Console, total: int) -> Iterator[_Step]:
    if not console.is_terminal:
        yield _Step(console, None, total)
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Step(console, progress, total)
