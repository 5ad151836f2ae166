"""Models that ask other models of the same run, by a tool of their server.

A router has one address for each model, wherever its engines are just now. The servers of models
that ask get a `caesura.toml` whose tool `ask_model` has that address.
"""

import json
import re
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from caesura.planning.application.application import Application, ApplicationError, Model
from caesura.planning.run.host import Asking, Endpoint, EngineHost, Replica

ADDRESS = "127.0.0.1"
MAX_BODY_BYTES = 16 << 20
MAX_ANSWER_SECONDS = 3600.0


class Router(Asking):
    """Passes requests for a model on to one of its engines, the one with the fewest in flight.

    An asynchronous context manager. It listens on this machine only, on a free port. A model
    without an engine is answered with status 503, so that the tool that asked tells the asking
    model.
    """

    def __init__(self) -> None:
        super().__init__(MAX_ANSWER_SECONDS)
        self._engines: dict[str, dict[str, Endpoint]] = {}
        self._in_flight: dict[str, int] = {}
        self._port = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/{model}/v1/chat/completions", self._chat)
        app.router.add_get("/{model}/metrics", self._metrics)
        await super().__aenter__()
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
        assert self._runner is not None
        await super().__aexit__(kind, error, trace)
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
        url = endpoint.chat_url
        try:
            async with self.http.post(url, json=body, headers=endpoint.headers) as answer:
                content = await answer.read()
                kind = answer.content_type
                return web.Response(body=content, status=answer.status, content_type=kind)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise web.HTTPBadGateway(text=f"the engine was lost: {error!r:.200}") from None

    async def _metrics(self, request: web.Request) -> web.Response:
        """Answer with the metrics of all engines of the model, one behind the other."""
        texts = []
        for endpoint in list(self._engines.get(request.match_info["model"], {}).values()):
            url = f"{endpoint.server}/metrics"
            try:
                async with self.http.get(url, headers=endpoint.headers) as answer:
                    texts.append(await answer.text())
            except (aiohttp.ClientError, TimeoutError):
                continue
        return web.Response(text="\n".join(texts))


TOOL = "ask_model"
"""The built-in tool that asks another model."""

_HEADER = re.compile(rf"^\s*\[\s*tools\s*\.\s*{TOOL}\s*\].*$", re.MULTILINE)


def asked_models(application: Application) -> dict[str, str]:
    """Return by model which other model it asks.

    Raises `ApplicationError` for a model that asks several, which the tool cannot tell apart.
    """
    asked: dict[str, str] = {}
    for task in application.tasks:
        for name in task.asks:
            if asked.setdefault(task.model, name) != name:
                raise ApplicationError(
                    f"[tasks.{task.name}] the model {task.model!r} asks {asked[task.model]!r} and"
                    f" {name!r}, but a server has one tool that asks: give one of the two models a"
                    " second entry in [models] for this task"
                )
    return asked


def with_configs(
    application: Application,
    folder: Path,
    url_of: Callable[[str], str],
    expected_seconds: Mapping[str, float] | None = None,
) -> Application:
    """Return the application with a configuration for each model that asks another.

    The files are written into `folder`. `url_of` gives a model's address. `expected_seconds` are
    those of an answer, by asked model: the tool forecasts its pauses by them. What a model's own
    `config` says is kept, other settings of the tool too. Raises `ApplicationError` if it cannot
    be.
    """
    asked = asked_models(application)
    folder.mkdir(parents=True, exist_ok=True)
    return replace(
        application,
        models=tuple(
            _configured(model, asked[model.name], folder, url_of, expected_seconds or {})
            if model.name in asked
            else model
            for model in application.models
        ),
    )


def _configured(
    model: Model,
    asked: str,
    folder: Path,
    url_of: Callable[[str], str],
    expected_seconds: Mapping[str, float],
) -> Model:
    own = Path(model.config).read_text("utf-8") if model.config else ""
    values = tomllib.loads(own)
    tools = values.get("tools", {})
    given = {"url", "model"} & set(tools.get(TOOL, {}))
    if given or TOOL not in tools.get("enabled", [TOOL]):
        raise ApplicationError(
            f"[models.{model.name}] config {model.config}: leave url and model of [tools.{TOOL}]"
            f" to the run, and name {TOOL!r} in [tools] enabled if it has such a list"
        )
    # The address is one of this machine.
    private = "" if "allow_private" in values else "allow_private = true\n"
    path = folder / f"{model.name}.toml"
    added = f"url = {json.dumps(url_of(asked))}\nmodel = {json.dumps(asked)}\n"
    if asked in expected_seconds and "expected_seconds" not in tools.get(TOOL, {}):
        added += f"expected_seconds = {float(expected_seconds[asked])!r}\n"
    path.write_text(private + _with_settings(own, added), "utf-8")
    return replace(model, config=str(path))


def _with_settings(own: str, added: str) -> str:
    """Return the text of a configuration with more settings in the table of the tool."""
    if _HEADER.search(own):
        return _HEADER.sub(lambda found: f"{found[0]}\n{added}", own, count=1)
    return f"{own}\n[tools.{TOOL}]\n{added}"


class RoutedHost:
    """Tells a router which engines of another host are loaded; else it is that host."""

    def __init__(self, host: EngineHost, router: Router) -> None:
        self._host = host
        self._router = router

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return self._host.devices

    async def place(self, replica: Replica) -> None:
        """Reserve the replica's devices."""
        await self._host.place(replica)

    async def load(self, replica: Replica) -> Endpoint:
        """Start the replica's engine, and route to it from now on."""
        endpoint = await self._host.load(replica)
        self._router.add(replica.model.name, replica.name, endpoint)
        return endpoint

    async def drain(self, replica: Replica, seconds: float) -> bool:
        """Route to it no more, and wait until its engine runs no request."""
        self._router.remove(replica.model.name, replica.name)
        return await self._host.drain(replica, seconds)

    async def evict(self, replica: Replica) -> None:
        """Free the memory of the replica's devices."""
        self._router.remove(replica.model.name, replica.name)
        await self._host.evict(replica)

    async def alive(self, replica: Replica) -> bool:
        """Return whether the replica's engine still runs."""
        return await self._host.alive(replica)

    async def usable(self) -> tuple[int, ...]:
        """Return the devices that can hold engines."""
        return await self._host.usable()

    async def close(self) -> None:
        """Stop all engines."""
        await self._host.close()


@asynccontextmanager
async def routed(
    application: Application,
    host: EngineHost,
    folder: Path,
    expected_seconds: Mapping[str, float] | None = None,
) -> AsyncIterator[tuple[Application, EngineHost]]:
    """Yield an application and a host whose models can ask each other while the block runs.

    Both are the given ones if no task asks a model. Configurations go into `folder`, with the
    `expected_seconds` of an answer by asked model. Raises `ApplicationError` for models that cannot
    ask.
    """
    if not asked_models(application):
        yield application, host
        return
    async with Router() as router:
        configured = with_configs(application, folder, router.url_of, expected_seconds)
        yield configured, RoutedHost(host, router)
