"""A file with the expected seconds of models' answers, as a plan or a measurement wrote it.

It is JSON: `{"models": {"NAME": {"seconds": 3.2}}}`.
"""

import json
from math import inf
from pathlib import Path

from caesura.tools.services import SetupError

MAX_FILE_BYTES = 2**20


class ForecastFile:
    """Reads the file again whenever it has changed."""

    def __init__(self, path: Path, model: str) -> None:
        """Create it; raises SetupError if the file exists and is not a file of forecasts."""
        self._path = path
        self._model = model
        self._read_as: tuple[int, int] | None = None
        self._seconds: float | None = None
        try:
            self._read()
        except ValueError as error:
            raise SetupError(f"[tools.ask_model] forecast_file: {path}: {error}") from None

    def seconds(self) -> float | None:
        """Return the model's expected seconds; None if the file does not say or cannot be read."""
        try:
            self._read()
        except ValueError:
            return None
        return self._seconds

    def _read(self) -> None:
        try:
            found = self._path.stat()
            version = (found.st_mtime_ns, found.st_size)
            if version == self._read_as:
                return
            self._read_as, self._seconds = version, None
            if found.st_size > MAX_FILE_BYTES:
                raise ValueError(f"has {found.st_size} bytes, more than {MAX_FILE_BYTES}")
            text = self._path.read_text(encoding="utf-8")
        except OSError:
            self._read_as = self._seconds = None  # a run may write the file later
            return
        self._seconds = _seconds_of(text, self._model)


def _seconds_of(text: str, model: str) -> float | None:
    try:
        data = json.loads(text)
        about = data["models"].get(model)
        seconds = None if about is None else float(about["seconds"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(
            f'is no file of forecasts, {{"models": {{NAME: {{"seconds": 3.2}}}}}}: {error!r}'
        ) from None
    if seconds is not None and not 0 < seconds < inf:
        raise ValueError(f"seconds of {model!r} must be positive and finite, got {seconds!r}")
    return seconds
