"""What a what-if may change, and the machine that it runs on: names only, never code of others."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from caesura.intercept.kv.handling import HANDLINGS
from caesura.runtime.errors import UsageError
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.policy.names import ADMISSIONS, RANKINGS
from caesura.scheduler.settings import POLICIES
from caesura.simulator.policy import NOT_REPLAYED, SIZES, Policy, recorded_policy

NAMES: Mapping[str, tuple[str, ...]] = {
    "handling": tuple(HANDLINGS),
    "ranking": tuple(RANKINGS),
    "admission": tuple(ADMISSIONS),
}
"""The policies that can be named, by what they decide."""
GIGA = 1e9
AS_RECORDED = "as recorded"


@dataclass(frozen=True, slots=True)
class Choice:
    """What one replay changes of the recorded policy, by name; None: it stays as recorded."""

    handling: str | None = None
    ranking: str | None = None
    admission: str | None = None

    def __post_init__(self) -> None:
        for what, name in self.changes.items():
            if name not in NAMES[what]:
                known = ", ".join(NAMES[what])
                raise UsageError(f"unknown {what} {name!r:.60}; choose from: {known}")

    @property
    def changes(self) -> dict[str, str]:
        """Return the names that are given, by what they decide."""
        return {what: name for what, name in asdict(self).items() if name is not None}

    def of(self, recorded: Policy) -> Policy:
        """Return the recorded policy with these changes."""
        settings = {**recorded.settings, **self.changes}
        return replace(recorded, name=named(settings), settings=settings)


def recorded_of(about: Mapping[str, Any]) -> Policy:
    """Return the policy of a recording; raises `UsageError` for one that cannot be replayed."""
    for what in (*POLICIES, "prediction"):
        if "." in str(about.get(what, "")).partition(":")[0]:
            raise UsageError(
                f"the recording's {what} {about[what]!r:.80} is code, which no replay of a"
                " recording runs: name it in `caesura replay FILE --policy`"
            )
    try:
        return recorded_policy(about, AS_RECORDED)
    except (ValueError, TypeError) as error:
        raise UsageError(f"this recording has no replay: {error}") from error


def named(settings: Mapping[str, Any]) -> str:
    """Return the policies of some settings in words."""
    return ", ".join(f"{what} {settings[what]}" for what in POLICIES)


def doubts_about(about: Mapping[str, Any]) -> list[str]:
    """Return sentences on what of a recording its replay cannot follow."""
    told = [
        f"The recorded engine had {what} {about[what]!r:.80}; a replay goes without it."
        for what in NOT_REPLAYED
        if about.get(what, "off") not in ("off", None)
    ]
    lacked = [name for name in (*POLICIES, *SIZES) if name not in about]
    if lacked:
        told.append(f"The recording does not tell {', '.join(lacked)}: defaults are assumed.")
    if isinstance(engines := about.get("engines"), int) and engines > 1:
        told.append(f"{engines} engines served; a replay has one, with the memory of all.")
    return told


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
    # Half a block more, so that rounding does not lose a block.
    slots = hosted + 0.5 if isinstance(hosted, int) and hosted > 0 else 0
    host = slots * size * calibration.bytes_per_token / GIGA
    spec = f"calibration:path={path},kv={blocks * size}"
    if not min(calibration.cost.out_rate, calibration.cost.in_rate):
        return f"{spec},host=0,link=1"  # without a link nothing is copied
    return f"{spec},host={host:.12g}"
