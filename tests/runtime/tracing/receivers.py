"""OTLP receivers on this machine: over HTTP and over gRPC, willing or not."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
from aiohttp import web
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Received:
    """What came, decoded."""

    def __init__(self) -> None:
        self.url = ""
        self.requests = 0
        self.status = 200
        self.headers: list[dict[str, str]] = []
        self.spans: list[Span] = []
        self.resource: dict[str, str] = {}
        self.held: asyncio.Event | None = None
        """While it is there and not set, requests wait."""

    def take(self, message: trace_service_pb2.ExportTraceServiceRequest) -> None:
        for resource in message.resource_spans:
            for each in resource.resource.attributes:
                self.resource[each.key] = each.value.string_value
            for scope in resource.scope_spans:
                self.spans += scope.spans

    @property
    def names(self) -> list[str]:
        return sorted(span.name for span in self.spans)


@asynccontextmanager
async def http_receiver() -> AsyncIterator[Received]:
    received = Received()

    async def take(request: web.Request) -> web.Response:
        received.requests += 1
        body = await request.read()
        if received.held is not None:
            await received.held.wait()
        if received.status == 200:
            received.headers.append({k.lower(): v for k, v in request.headers.items()})
            received.take(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
        return web.Response(status=received.status)

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    received.url = f"http://127.0.0.1:{site.port}"
    try:
        yield received
    finally:
        await runner.cleanup()


class _Servicer(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, received: Received) -> None:
        self._received = received

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._received.requests += 1
        self._received.headers.append(dict(context.invocation_metadata()))
        self._received.take(request)
        return trace_service_pb2.ExportTraceServiceResponse()


@asynccontextmanager
async def grpc_receiver() -> AsyncIterator[Received]:
    received = Received()
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Servicer(received), server)
        received.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield received
        finally:
            await asyncio.to_thread(server.stop(None).wait)
