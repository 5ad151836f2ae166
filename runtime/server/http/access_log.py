"""The access log: one line for each request, without anything that it or its answer contains."""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Literal, TextIO
from urllib.parse import quote

AccessLogForm = Literal["text", "json", "off"]
"""How the lines are written."""
PROBES = frozenset({"/health", "/ready", "/metrics"})
"""What is asked every few seconds, and has a line only where it fails."""
MAX_PATH_CHARACTERS = 200
_KEPT = "/:@!$&'()*+,;=~"
"""What a path may hold as it is, beside letters and digits. Line breaks are none of it."""


@dataclass(frozen=True, slots=True)
class Access:
    """A request that is over.

    `status` is 499 if its client left. `tenant` is the name of its key, `request_id` the
    `X-Request-Id` of its answer, and `id` that of the response or completion.
    """

    method: str
    path: str
    status: int
    seconds: float
    tenant: str = ""
    request_id: str = ""
    id: str = ""


class AccessLog:
    """Writes the lines, by default to stderr."""

    def __init__(
        self,
        form: Literal["text", "json"],
        out: TextIO | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._text = form == "text"
        self._out = out
        self._clock = clock

    def add(self, access: Access) -> None:
        """Write the line of a request. A stream that cannot be written loses it."""
        if access.path in PROBES and access.status < 400:
            return
        line = self._line(access)
        with suppress(OSError, ValueError):  # nobody reads it any more
            print(line, file=self._out or sys.stderr, flush=True)

    def _line(self, access: Access) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        path = quote(access.path[:MAX_PATH_CHARACTERS], safe=_KEPT, errors="replace")
        if not self._text:
            told = asdict(access) | {"path": path, "seconds": round(access.seconds, 4)}
            return json.dumps({"time": at, **told}, separators=(",", ":"))
        known = {"tenant": access.tenant, "request": access.request_id, "id": access.id}
        facts = "".join(f" {name}={json.dumps(value)}" for name, value in known.items() if value)
        return f"{at} {access.method} {path} {access.status} {access.seconds:.3f}s{facts}"
