"""A server with chat completions and metrics, as the tests of ask_model need it."""

import asyncio
from typing import Any

from aiohttp import web

METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="expert"} 3.0
vllm:num_requests_waiting{engine="0",model_name="expert"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="expert",reason="capacity"} 2.0
"""


class Expert:
    """Answers every question as the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.message: Any = {"role": "assistant", "content": "It is blue."}
        self.finish_reason = "stop"
        self.status = 200
        self.metrics: str | None = METRICS
        self.released = asyncio.Event()
        self.released.set()
        self.came, self.left = asyncio.Event(), asyncio.Event()
        self.metrics_read = asyncio.Event()

    async def completions(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        self.came.set()
        try:
            await self.metrics_read.wait()
            await self.released.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        choice = {"index": 0, "message": self.message, "finish_reason": self.finish_reason}
        return web.json_response({"choices": [choice]}, status=self.status)

    async def load(self, request: web.Request) -> web.Response:
        self.metrics_read.set()
        if self.metrics is None:
            raise web.HTTPNotFound
        return web.Response(text=self.metrics, content_type="text/plain")

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.completions)
        app.router.add_get("/metrics", self.load)
        return app
