"""A recording in a file, and `caesura trace` on it."""

from collections.abc import Iterable
from pathlib import Path

from typer.testing import CliRunner, Result

from caesura.runtime.cli.app import app
from caesura.runtime.recording.entries import Entry, row_of
from caesura.runtime.recording.storage import Store


def stored(folder: Path, entries: Iterable[Entry], ended: float) -> Path:
    """Return a file with the recording of a server that started at 99 s."""
    file = folder / "traces.sqlite"
    store = Store(file)
    made = store.begin("caesura serve", "serve", started=99.0)
    store.append(made, [row_of(entry) for entry in entries])
    store.end(made, ended)
    store.close()
    return file


def trace(*arguments: object, code: int = 0) -> Result:
    """Return the result of `caesura trace` with these arguments."""
    result = CliRunner().invoke(app, ["trace", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result
