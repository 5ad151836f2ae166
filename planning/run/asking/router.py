"""One address for each model of a run, wherever its engines are just now."""

from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from caesura.planning.run.host import Endpoint

ADDRESS = "127.0.0.1"
MAX_BODY_BYTES = 16 << 20
MAX_ANSWER_SECONDS = 3600.0


class Router:
    """Passes requests for a model on to one of its engines, the one with the fewest in flight.

    An asynchronous context manager. It listens on this machine only, on a free port. A model
    without an engine is answered with status 503, so that the tool that asked tells the asking
    model.
    """

    def __init__(self) -> None:
        self._engines: dict[str, dict[str, Endpoint]] = {}
        self._in_flight: dict[str, int] = {}
        self._port = 0
        self._runner: web.AppRunner | None = None
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/{model}/v1/chat/completions", self._chat)
        app.router.add_get("/{model}/metrics", self._metrics)
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=MAX_ANSWER_SECONDS, sock_connect=30),
            connector=aiohttp.TCPConnector(limit=0),
        )
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, ADDRESS, 0)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        assert self._runner is not None and self._http is not None
        await self._http.close()
        await self._runner.cleanup()

    def url_of(self, model: str) -> str:
        """Return the base of a model's paths, such as http://127.0.0.1:8000/small/v1."""
        return f"http://{ADDRESS}:{self._port}/{model}/v1"

    def add(self, model: str, replica: str, endpoint: Endpoint) -> None:
        """Pass requests of the model on to a replica too."""
        self._engines.setdefault(model, {})[replica] = endpoint
        self._in_flight.setdefault(replica, 0)

    def remove(self, model: str, replica: str) -> None:
        """Send a replica no more."""
        self._engines.get(model, {}).pop(replica, None)

    async def _chat(self, request: web.Request) -> web.Response:
        model = request.match_info["model"]
        engines = self._engines.get(model, {})
        if not engines:
            raise web.HTTPServiceUnavailable(text=f"no engine of the model {model!r} is loaded now")
        replica = min(engines, key=lambda name: self._in_flight[name])
        endpoint = engines[replica]
        body = await request.json()
        if not isinstance(body, dict):
            raise web.HTTPBadRequest(text="the body must be a JSON object")
        self._in_flight[replica] += 1
        try:
            return await self._passed(endpoint, {**body, "model": endpoint.model, "stream": False})
        finally:
            self._in_flight[replica] -= 1

    async def _passed(self, endpoint: Endpoint, body: dict[str, object]) -> web.Response:
        assert self._http is not None
        url = endpoint.chat_url
        try:
            async with self._http.post(url, json=body, headers=endpoint.headers) as answer:
                content = await answer.read()
                kind = answer.content_type
                return web.Response(body=content, status=answer.status, content_type=kind)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise web.HTTPBadGateway(text=f"the engine was lost: {error!r:.200}") from None

    async def _metrics(self, request: web.Request) -> web.Response:
        """Answer with the metrics of all engines of the model, one behind the other."""
        assert self._http is not None
        texts = []
        for endpoint in list(self._engines.get(request.match_info["model"], {}).values()):
            url = f"{endpoint.server}/metrics"
            try:
                async with self._http.get(url, headers=endpoint.headers) as answer:
                    texts.append(await answer.text())
            except (aiohttp.ClientError, TimeoutError):
                continue
        return web.Response(text="\n".join(texts))
