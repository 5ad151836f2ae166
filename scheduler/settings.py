"""What the scheduler is told at its start, under `caesura` in vLLM's `additional_config`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from caesura.intercept.handling import DEFAULT_HANDLING, HANDLINGS


@dataclass(frozen=True, slots=True)
class Settings:
    """How paused requests are treated.

    `handling` names the policy. `calibration` is the path of a file that `caesura calibrate` has
    written. `pauses` is the path of a file that keeps what was observed of tools' pauses over
    restarts. `pause_deadline` is how many seconds a pause may last before its KV cache is given up
    altogether, on the host too; `retention` how many seconds the KV cache of a request that ended
    with calls is kept for its follow-up (0: not at all). `prefetch`: what is on the host is
    loaded ahead, into blocks that nobody needs, when its tool is expected back within so many
    seconds (0: never). `records` has a record made of every pause and every step.
    """

    handling: str = DEFAULT_HANDLING
    calibration: str | None = None
    pauses: str | None = None
    pause_deadline: float = 600.0
    retention: float = 120.0
    prefetch: float = 0.0
    records: bool = True

    def __post_init__(self) -> None:
        if self.handling not in HANDLINGS:
            known = ", ".join(sorted(HANDLINGS))
            raise ValueError(f"caesura.handling must be one of {known}, not {self.handling!r}")
        for name in ("pause_deadline", "retention", "prefetch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise ValueError(f"caesura.{name} must be a number of seconds, not {value!r}")
        for name in ("calibration", "pauses"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"caesura.{name} must be a path, not {value!r}")

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> "Settings":
        """Read settings; raises `ValueError` naming what is wrong."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise ValueError(
                f"caesura has no setting {', '.join(unknown)}; there are {', '.join(sorted(known))}"
            )
        return cls(**given)
