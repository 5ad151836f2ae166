"""The clock tool: the time now, anywhere."""

import difflib
import functools
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from caesura.tools.errors import Permanent
from caesura.tools.services import Services, ToolSettings
from caesura.tools.tool import Tool, tool

_NEAR_MATCHES = 3
# Entries of the time zone database that name no place.
_NO_PLACES = {"localtime", "Factory"}


def make_clock(now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Tool:
    """Return the clock tool over `now`, which must give timezone-aware datetimes."""

    @tool
    def clock(timezone: str = "UTC") -> str:
        """Tell the current date and time in a time zone.

        Args:
            timezone: IANA name of the time zone, for example "Europe/Paris"; UTC by default.
        """
        return now().astimezone(_zone(timezone)).strftime("%Y-%m-%d %H:%M:%S %Z")

    return clock


clock = make_clock()
"""The clock tool over the machine's clock."""


def _zone(name: str) -> tzinfo:
    """Return the time zone of that name, in any case. Raises Permanent with near matches."""
    key = name.strip().lower()
    if key in ("utc", "z"):
        return UTC  # known even where the machine has no time zone data
    known = _zones()
    if key in known:
        # Only names from the list reach the file system.
        return ZoneInfo(known[key])
    near = _near(key, known)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise Permanent(
        f"unknown time zone {name[:64]!r}; use an IANA name such as 'Europe/Paris'{hint}"
    )


@functools.cache
def _zones() -> dict[str, str]:
    """Return the names of all time zones, by their lower-case form."""
    return {name.lower(): name for name in sorted(available_timezones() - _NO_PLACES)}


def _near(key: str, known: dict[str, str]) -> list[str]:
    """Return up to 3 likely names: cities of that name first, then similar names."""
    key = key[:64].replace(" ", "_")
    city = key.rsplit("/", 1)[-1]
    near = [name for lower, name in known.items() if lower.rsplit("/", 1)[-1] == city]
    near += [known[lower] for lower in difflib.get_close_matches(key, known, n=_NEAR_MATCHES)]
    return list(dict.fromkeys(near))[:_NEAR_MATCHES]


Settings = ToolSettings


def make(settings: ToolSettings, services: Services) -> Tool:
    """Return the clock tool, for `Toolset`."""
    return clock
