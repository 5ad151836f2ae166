"""Where spans are sent, by OpenTelemetry's environment variables."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

LOG = logging.getLogger(__name__)

HTTP, GRPC = "http/protobuf", "grpc"
DEFAULT_ENDPOINTS = {HTTP: "http://localhost:4318", GRPC: "http://localhost:4317"}


@dataclass(frozen=True, slots=True)
class Receiver:
    """The receiver of spans: an OTLP endpoint, as a whole URL for HTTP."""

    protocol: str
    endpoint: str


@cache
def receiver_of_process() -> Receiver | None:
    """Return the receiver by the environment at the time of the first call.

    vLLM changes these variables when it traces, so the first call must come before vLLM starts.
    """
    return receiver_in(os.environ)


def receiver_in(environ: Mapping[str, str]) -> Receiver | None:
    """Return the receiver in OpenTelemetry's variables, or None if there is none or it is off."""

    def said(name: str) -> str:
        return environ.get(name, "").strip()

    def of_traces(name: str) -> str:
        return said(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or said(f"OTEL_EXPORTER_OTLP_{name}")

    if said("OTEL_SDK_DISABLED").lower() == "true":
        return None
    exporter = said("OTEL_TRACES_EXPORTER").lower()
    if exporter == "none" or not (exporter or of_traces("ENDPOINT")):
        return None
    if exporter not in ("", "otlp"):
        LOG.warning("OTEL_TRACES_EXPORTER=%s is not supported; use otlp or none", exporter)
        return None
    protocol = of_traces("PROTOCOL").lower() or HTTP
    if protocol not in DEFAULT_ENDPOINTS:
        LOG.warning("OTLP over %s is not supported; use %s or %s", protocol, HTTP, GRPC)
        return None
    endpoint = said("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if not endpoint:
        endpoint = said("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINTS[protocol]
        if protocol == HTTP:
            endpoint = f"{endpoint.rstrip('/')}/v1/traces"
    return Receiver(protocol, endpoint)
