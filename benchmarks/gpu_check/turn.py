"""A check's turn: engines start side by side, and what is timed is measured one by one."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Turn:
    """How a check in its own process waits until it may measure; the runner holds the other end.

    `path` has no suffix: a file beside it says that the check is ready, another one that it may go.
    """

    path: Path

    @property
    def calibration(self) -> Path:
        """The file in which the check of copies leaves what it measured, for the checks behind."""
        return self.path.with_name("calibration.json")

    @property
    def ready(self) -> Path:
        """The file that is there once the check waits for its turn."""
        return self.path.with_suffix(".ready")

    @property
    def go(self) -> Path:
        """The file with the seconds that the check may measure, once it is its turn."""
        return self.path.with_suffix(".go")

    async def begin(self) -> float:
        """Wait for the turn; return the seconds that it has."""
        self.ready.touch()
        while not self.go.exists():  # noqa: ASYNC110 (another process makes the file)
            await asyncio.sleep(LOOK_SECONDS)
        return float(self.go.read_text())

    def give(self, seconds: float) -> None:
        """Let the check begin."""
        beside = self.path.with_suffix(".new")
        beside.write_text(f"{seconds:.1f}")
        beside.rename(self.go)

    def clear(self) -> None:
        """Forget an earlier turn."""
        self.ready.unlink(missing_ok=True)
        self.go.unlink(missing_ok=True)
