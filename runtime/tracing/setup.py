"""The choice of whether and where spans are sent, by the environment or the caller.

This module does not import OpenTelemetry at its top, since the package is optional.
"""

import importlib.util
import logging
from functools import cache
from typing import TYPE_CHECKING, Literal

from caesura.distribution import install
from caesura.runtime.errors import UsageError
from caesura.runtime.receiver import HTTP, receiver_of_process

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import TracerProvider

    from caesura.runtime.recording.recorder import Recorder
    from caesura.runtime.tracing.tracing import Tracing

    Given = TracerProvider | SpanProcessor | Literal[False] | None
    """A caller's setting: None follows the environment, False turns tracing off."""

LOG = logging.getLogger(__name__)

INSTALL = install("tracing")


def tracing_of(given: "Given" = None, recorder: "Recorder | None" = None) -> "Tracing | None":
    """Return the `Tracing` that makes spans, or None if tracing is off.

    A provider is used as it is, and its owner shuts it down. A processor gets a provider of its
    own, and is shut down when the process ends. A recorder gets all spans, sent or not.
    Raises `UsageError` for any other value, and if OpenTelemetry is not installed.
    """
    if given is False or given is None:
        sent = from_environment() if given is None else None
        return sent if recorder is None else _recorded(recorder, sent)
    try:
        from opentelemetry.sdk.trace import SpanProcessor
        from opentelemetry.trace import TracerProvider

        from caesura.runtime.tracing.tracing import beside, recorded, recorded_beside, through
    except ImportError as error:
        raise UsageError(f"tracing needs OpenTelemetry ({error}): {INSTALL}") from None
    if isinstance(given, TracerProvider):
        return beside(given) if recorder is None else recorded_beside(recorder, given)
    if isinstance(given, SpanProcessor):
        return through(given) if recorder is None else recorded(recorder, given)
    raise UsageError(
        "tracing must be a TracerProvider or a SpanProcessor of OpenTelemetry, False for none, or "
        f"None to use OTEL_EXPORTER_OTLP_ENDPOINT; got {type(given).__name__}"
    )


def _recorded(recorder: "Recorder", sent: "Tracing | None") -> "Tracing | None":
    """Return a `Tracing` that sends spans to a recorder and to `sent`'s receiver, if any."""
    if not _installed():
        LOG.warning(
            "recordings hold no spans, since OpenTelemetry is not installed: %s",
            INSTALL,
        )
        return None
    from caesura.runtime.tracing.tracing import recorded

    return recorded(recorder, None if sent is None else sent.exports)


@cache
def from_environment() -> "Tracing | None":
    """Return the tracing of this process, by the environment (`receiver_of_process`)."""
    receiver = receiver_of_process()
    if receiver is None:
        return None
    if not _installed(receiver.protocol):
        LOG.warning(
            "no spans are sent to %s, since OpenTelemetry is not installed: %s",
            receiver.endpoint,
            INSTALL,
        )
        return None
    from caesura.runtime.tracing.export import Exports
    from caesura.runtime.tracing.tracing import exporter_of, through

    return through(Exports(lambda: exporter_of(receiver), receiver.endpoint))


def _installed(protocol: str | None = None) -> bool:
    """Return whether the packages for spans, and for the protocol if given, are installed."""
    wanted = ["opentelemetry.sdk.trace"]
    if protocol is not None:
        exporter = "http" if protocol == HTTP else "grpc"
        wanted.append(f"opentelemetry.exporter.otlp.proto.{exporter}")
    try:
        return all(importlib.util.find_spec(name) is not None for name in wanted)
    except ModuleNotFoundError:  # a parent package is missing
        return False
