"""An endpoint plugin for `vllm serve`: Caesura's routes inside vLLM's own server.

`VLLM_PLUGINS=caesura vllm serve MODEL --scheduler-cls caesura.scheduler.vllm.CaesuraAsyncScheduler`
then answers chat completions with `server_tools`, `/v1/messages`, `/v1/responses`, `/ui/`,
`/v1/trace` and `/v1/pending`, and more as `caesura serve` does. vLLM's server answers everything
else as before. The environment variable `CAESURA_CONFIG` names a `caesura.toml`, `CAESURA_TRACE`
a file of traces, or `off`, and `CAESURA_RESPONSES` the file of stored responses; `off` keeps these
in memory. `CAESURA_API_KEY_FILE` names a file with settings of vLLM's keys, such as their roles.
"""

import logging
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caesura.runtime.errors import CaesuraError, UsageError
from caesura.runtime.launch import inside, server_around
from caesura.runtime.run.limits import configured_limits
from caesura.runtime.sdk.configured import ConfiguredAgents
from caesura.runtime.server.api.delegation import Again, may_be_ours
from caesura.runtime.server.app import CHAT, Application, ServerParts, create_app
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.http.exchange import refuse
from caesura.runtime.server.keys.key import Key, read_keys
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.server.responses.store import SqliteResponses
from caesura.runtime.tracing.recorded import GivenTraces, recorded
from caesura.scheduler.paths import responses_path
from caesura.tools.config.caesura_toml import Config
from caesura.tools.people import people_of

log = logging.getLogger(__name__)

CONFIG, TRACE, RESPONSES = "CAESURA_CONFIG", "CAESURA_TRACE", "CAESURA_RESPONSES"
KEY_FILE = "CAESURA_API_KEY_FILE"
OFF = "off"


class EndpointPlugin:
    """The plugin, as vLLM's `EndpointPlugin` describes it."""

    name = "caesura"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._ours: Application | None = None
        self._vllm: Starlette | None = None
        self._next: ASGIApp | None = None

    def attach_router(self, app: Starlette) -> None:
        """Put Caesura's application in front of vLLM's routes."""
        self._vllm = app
        app.add_middleware(_InFront, plugin=self)

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Build Caesura's application on vLLM's engine.

        Without Caesura's scheduler, or with a configuration that is wrong, vLLM's server runs
        alone, and its log says why.
        """
        if getattr(args, "behind_caesura", False):
            return  # `caesura serve` has these routes itself
        try:
            self._ours = await self._build(engine_client, state, args, os.environ)
        except CaesuraError as error:
            log.error("Caesura's routes are off: %s", error)
            await self._stack.aclose()

    async def _build(
        self, llm: Any, state: Any, args: Namespace, environment: Mapping[str, str]
    ) -> Application:
        served = args.served_model_name or [args.model]
        adapters = state.openai_serving_models.lora_requests
        engine = await inside(llm, served, vars(args), adapters)
        given = environment.get(CONFIG)
        config = Config.load(None if given is None else Path(given))
        toolset = await self._stack.enter_async_context(config.toolset())
        trace = environment.get(TRACE, "")
        traces = GivenTraces(Path(trace) if trace not in ("", OFF) else None, trace == OFF)
        recorder = await self._stack.enter_async_context(
            recorded(engine, traces, config, f"vllm serve, {served[0]}", "serve")
        )
        given_keys = args.api_key or [environment.get("VLLM_API_KEY", "")]
        keys = keys_with_settings([key for key in given_keys if key], environment)
        options = ServerOptions(
            api_key=keys or None,
            allowed_hosts=[args.host] if args.host else [],
            allowed_origins=[each for each in args.allowed_origins if each != "*" or keys],
            limits=configured_limits(config.limits),
            allow_private=config.allow_private,
            users=config.trace.users,
            public_url=config.trace.public_url,
        )
        parts = ServerParts(
            agents=ConfiguredAgents(config, toolset, engine, recorder).served(),
            artifacts=toolset.services.artifacts,
            people=people_of(toolset.services),
            recorder=recorder,
            store=store_of(environment),
            vllm=server_around(engine, self._to_vllm),
        )
        app = create_app(engine, toolset.registry, options, parts)
        if "PROMETHEUS_MULTIPROC_DIR" not in environment:
            app.metrics.join(REGISTRY)
        await app.start()
        self._stack.push_async_callback(app.close)  # after `leave`
        self._stack.push_async_callback(app.leave)
        return app

    async def _to_vllm(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._next is not None
        scope["app"] = self._vllm  # its handlers find their state there
        await self._next(scope, receive, send)

    async def answer(self, behind: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: a request that is not ours goes to `behind`, untouched."""
        self._next = behind
        if scope["type"] == "lifespan":
            receive = self._closing(receive)
        ours = self._ours
        if ours is not None and ours.has_route(scope):
            if scope["path"] != CHAT:
                await ours(scope, receive, send)
                return
            body = await Request(scope, receive).body()
            receive = Again(body, receive)
            if (
                may_be_ours(body, ours.agents)
                or "Content-Encoding" in HTTPConnection(scope).headers
            ):
                await ours(scope, receive, send)
                return
        elif ours is not None and scope["type"] != "lifespan":
            try:
                ours.check_route(HTTPConnection(scope))  # vLLM's server knows no roles
            except ApiError as error:
                await refuse(error, scope, receive, send)
                return
        await behind(scope, receive, send)

    def _closing(self, receive: Receive) -> Receive:
        """Return the `receive` of vLLM's application, which closes ours before vLLM's ends."""

        async def received() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._stack.aclose()
            return message

        return received


def store_of(environment: Mapping[str, str]) -> SqliteResponses:
    """Return the store of responses that the environment names, or the user's own."""
    given = environment.get(RESPONSES, "")
    if given == OFF:
        return SqliteResponses(None)
    return SqliteResponses(Path(given) if given else responses_path())


def keys_with_settings(keys: Sequence[str], environment: Mapping[str, str]) -> list[Key]:
    """Return the keys of vLLM's server, with the settings of the file that the environment names.

    Raises `UsageError` for a file that cannot be read, or that has a key which vLLM does not take.
    """
    given = environment.get(KEY_FILE, "")
    listed = {key.tenant: key for key in read_keys(Path(given))} if given else {}
    known = [Key(key) for key in keys]
    if unknown := set(listed) - {key.tenant for key in known}:
        raise UsageError(
            f"{KEY_FILE} holds {len(unknown)} of {len(listed)} keys that `vllm serve` does not"
            " take: give it the same keys with --api-key"
        )
    return [listed.get(key.tenant, key) for key in known]


class _InFront:
    """The middleware that asks the plugin first."""

    def __init__(self, app: ASGIApp, plugin: EndpointPlugin) -> None:
        self._app = app
        self._plugin = plugin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._plugin.answer(self._app, scope, receive, send)
