"""Runs kept in files, one each, so that a series can be filled in pieces and shown again."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class KeptRuns:
    """Runs in one folder, found by what was run: the settings that all share, and what is its own.

    What is a run's own is a few short values; those that are text or numbers name its file.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Open the folder for runs of these settings, which must be plain data."""
        self._folder = folder
        self._settings = json.loads(json.dumps(settings))

    def find(self, what: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the run of `what`, or None if there is none."""
        path = self._path(what)
        return json.loads(path.read_text())["run"] if path.exists() else None

    def keep(self, what: Mapping[str, Any], run: Mapping[str, Any]) -> None:
        """Write a run; a reader sees the old file or the new one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(what)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({"settings": self._settings, "what": dict(what), "run": run}))
        beside.replace(path)

    def all(self) -> Iterator[dict[str, Any]]:
        """Yield every run of these settings, by name of its file."""
        for path in sorted(self._folder.glob("*.json")):
            kept = json.loads(path.read_text())
            if kept["settings"] == self._settings:
                yield kept["run"]

    def _path(self, what: Mapping[str, Any]) -> Path:
        text = json.dumps([self._settings, dict(what)], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        # The words before the digest are for people, and may be others in older files.
        kept = next(self._folder.glob(f"*-{digest}.json"), None)
        values = (each for each in what.values() if isinstance(each, str | float | int))
        words = re.sub(r"[^\w.-]+", "_", "-".join(map(str, values)))
        return kept or self._folder / f"{words}-{digest}.json"
