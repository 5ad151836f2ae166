"""What a what-if may change, and the machine that it runs on: names only, never code of others."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.intercept.kv.handling import DEFAULT_HANDLING, HANDLINGS
from caesura.runtime.errors import UsageError
from caesura.scheduler.admission import ADMISSIONS, DEFAULT_ADMISSION
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.rank import DEFAULT_RANKING, RANKINGS

NAMES: Mapping[str, tuple[str, ...]] = {
    "handling": tuple(HANDLINGS),
    "ranking": tuple(RANKINGS),
    "admission": tuple(ADMISSIONS),
}
"""The policies that can be named, by what they decide."""
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Choice:
    """The policies of one replay, by name."""

    handling: str = DEFAULT_HANDLING
    ranking: str = DEFAULT_RANKING
    admission: str = DEFAULT_ADMISSION

    def __post_init__(self) -> None:
        for what, known in NAMES.items():
            name = getattr(self, what)
            if name not in known:
                raise UsageError(f"unknown {what} {name!r:.60}; choose from: {', '.join(known)}")

    @property
    def policy(self) -> str:
        """The policy for `caesura replay`."""
        said = ",".join(f"{what}={getattr(self, what)}" for what in NAMES)
        return f"caesura:{said}"

    def __str__(self) -> str:
        return f"handling {self.handling}, ranking {self.ranking}, admission {self.admission}"


def machine_of(calibration: Calibration, path: Path, about: Mapping[str, Any]) -> str:
    """Return the machine for `caesura replay` that a recording was made on.

    Its costs are those of the calibration, which is written to `path`. Raises `UsageError` for a
    recording of another machine, and for one that does not tell its memory.
    """
    blocks, size = about.get("total_blocks"), about.get("block_size")
    if not isinstance(blocks, int) or not isinstance(size, int) or blocks < 1 or size < 1:
        raise UsageError(
            f"this recording does not tell the engine's memory, so it has no replay: {blocks}"
            f" blocks of {size} tokens"
        )
    if about.get("machine") != calibration.device or size != calibration.block_size:
        raise UsageError(
            f"this recording is of {about.get('machine') or 'an engine without a calibration'},"
            f" and this server is calibrated for {calibration.device}: use `caesura replay"
            " --recording` with --machine calibration:path=..."
        )
    try:
        calibration.save(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    hosted = about.get("host_blocks")
    host = (hosted if isinstance(hosted, int) else 0) * size * calibration.bytes_per_token / GIGA
    spec = f"calibration:path={path},kv={blocks * size}"
    if not min(calibration.cost.out_rate, calibration.cost.in_rate):
        return f"{spec},host=0,link=1"  # without a link nothing is copied
    return f"{spec},host={host:g}"
