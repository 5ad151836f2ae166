"""`caesura serve`: the engine, its supervisor and the server, put together by the options."""

import asyncio
import os
import re
import signal
import socket
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from rich.console import Console
from rich.markup import escape

from caesura.intercept.kv.views import Groups
from caesura.runtime.cli.calibrate import default_path, measure_shown, verdict
from caesura.runtime.cli.engine import engine_on
from caesura.runtime.cli.serve_options import (
    LifetimeOptions,
    ServeOptions,
)
from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.entries import SERVER
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.run.limits import configured_limits
from caesura.runtime.sdk.configured import ConfiguredAgents, python_agents
from caesura.runtime.sdk.engines import ENGINES
from caesura.runtime.server import serve
from caesura.runtime.server.about import loading_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.http.sockets import open_listener
from caesura.runtime.server.keys.access import is_loopback
from caesura.runtime.server.keys.key import Key, weights_of
from caesura.runtime.server.keys.rules import Role
from caesura.runtime.server.load.gate import Machine, QueueBound
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.supervision import (
    DEFAULT_RULES,
    EngineProcess,
    Phase,
    Readiness,
    RecordedRestarts,
    Supervisor,
)
from caesura.runtime.tracing.recorded import recorded
from caesura.runtime.trajectories.kept import KeptSessions, SessionBounds
from caesura.runtime.whatif.replays import Replays
from caesura.scheduler.vllm_server import VllmServer
from caesura.tools.config.caesura_toml import Config
from caesura.tools.people import people_of
from caesura.tools.registry import Registry


def supervisor_of(
    engine: Engine,
    vllm: VllmServer | None,
    readiness: Readiness,
    lifetime: LifetimeOptions,
    queue: QueueBound,
    recorder: Recorder | None,
) -> Supervisor:
    """Return the supervisor of an engine, of vLLM's application on it, and of its queue.

    It tells the recorder, if given, of restarts.
    """
    restarts = None if recorder is None else RecordedRestarts(recorder)

    def tell(what: str, why: str, seconds: float) -> None:
        if what in ("died", "hung"):
            queue.forget()
        if restarts is not None:
            restarts.tell(what, why, seconds)

    after: Sequence[Callable[[], Awaitable[None]]] = ()
    if vllm is not None and vllm.renew is not None:
        after = (vllm.renew,)
    return Supervisor(
        engine,
        readiness,
        rules=None if lifetime.no_restart else DEFAULT_RULES,
        process=EngineProcess(
            lifetime.engine_timeout,
            ask=engine.backend.answer,
            why_dead=engine.backend.cause_of_death,
            after_restart=after,
        ),
        tell=tell,
    )


@asynccontextmanager
async def queue_bound(engine: Engine, most_seconds: float) -> AsyncIterator[QueueBound]:
    """Yield the bound, which follows the engine's records while the context lasts.

    Raises `UsageError` for a bound on an engine without records, and `EngineFailed`.
    """
    sizes = await engine.backend.sizes()
    if most_seconds and not sizes:
        raise UsageError(
            f"--max-queue-seconds is {most_seconds:g}, but this engine sends no records from which"
            " waits are predicted: leave out --disable-log-stats, or the bound"
        )
    machines = [
        Machine(
            each["block_size"],
            each["capacity_tokens"],
            each["most_running"],
            Groups(**each["groups"]),
        )
        for each in sizes
    ]
    for line in kv_lines(machines):
        _say(line)
    bound = QueueBound(most_seconds, machines)
    stop = engine.backend.listen(bound.take)
    try:
        yield bound
    finally:
        stop()


console = Console(stderr=True)
OPEN_TO_ALL = (
    "there is no API key: everyone who can reach this address can use the model and the tools, "
    "read traces and approve calls; use --api-key to require a key"
)

NO_ADMINISTRATOR = (
    "no key has the role admin: none deletes recordings or commands the engine, and only those with"
    " the role view read the page; write role=admin behind a key in the --api-key-file"
)


async def serve_model(options: ServeOptions) -> None:
    """Serve until interrupted; requests in flight then have time to finish.

    A line on stderr tells of each stage of the start. A taken port is found before the engine
    starts. Raises `EngineLost` once the engine is given up, and `SystemExit` at a SIGTERM while it
    loads.
    """
    began = time.monotonic()
    options.check()
    keys = options.door.checked_keys()
    config = Config.load(options.source.config)
    python_agents(config)  # a mistake in them is told before the engine starts
    server = server_options(options, config, keys)
    readiness = Readiness(time.monotonic, Phase.LOADING)
    async with (
        stopped_by_sigterm(),
        open_listener(server.host, server.port, server.sockets, loading_app(readiness)) as listener,
        config.toolset() as toolset,
        _engine(options, weights_of(keys)) as engine,
        engine.backend.server() as vllm,
        queue_bound(engine, options.door.max_queue_seconds) as queue,
        ENGINES.lent(engine),
    ):
        readiness.engine_started()
        if not options.paused.no_calibrate:
            await ensure_calibrated(engine)
        _say(tools_line(toolset.registry))
        if config.agents:
            _say(agents_line(config.agents))
        # Recording starts here, so that it holds nothing of a calibration.
        sessions = kept_sessions(options.stores.trajectories, config, keys)
        told = (options.paused.about, sessions is not None)
        about = described(engine.model, options.door.server_name, *told)
        async with recorded(engine, options.traces, config, *about) as recorder:
            _say(traces_line(recorder))
            _warn_of_keys(keys, server.host)
            readiness.enter(Phase.READY)
            lifetime = options.lifetime
            parts = ServerParts(
                agents=ConfiguredAgents(config, toolset, engine, recorder).served(),
                vllm=vllm,
                supervisor=supervisor_of(engine, vllm, readiness, lifetime, queue, recorder),
                queue=queue,
                store=options.stores.store(),
                journal=options.stores.journal_store(),
                people=people_of(toolset.services),
                sessions=sessions,
                artifacts=toolset.services.artifacts,
                audit=options.audits.log(len(toolset.registry) > 0 or bool(config.agents)),
                recorder=recorder,
                replays=replays_of(engine, None if options.door.no_what_if else recorder),
            )

            def announce(url: str) -> None:
                _announce(url, recorder is not None, time.monotonic() - began)

            await serve(engine, toolset.registry, server, parts, announce, listener)


@asynccontextmanager
async def stopped_by_sigterm() -> AsyncIterator[None]:
    """Cancel what runs at a SIGTERM, and raise `SystemExit(0)` then: for the time of loading.

    The first process of a container ignores signals that it does not handle. The server has a
    handler of its own once it listens.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    terminated = False

    def stop() -> None:
        nonlocal terminated
        terminated = True
        if task is not None:
            task.cancel()

    with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
        loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not terminated:
            raise
        _say("stopped by SIGTERM before it listened")
        raise SystemExit(0) from None
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGTERM)


def server_options(options: ServeOptions, config: Config, keys: list[Key] | None) -> ServerOptions:
    """Return the settings of the server; raise `UsageError`."""
    door = options.door
    return ServerOptions(
        host=door.host,
        port=door.port,
        server_name=door.server_name,
        api_key=keys,
        shared_prefix_cache=door.shared_prefix_cache,
        allowed_hosts=door.allowed_host or (),
        allowed_origins=door.allowed_origin or (),
        allow_private=config.allow_private,
        users=config.trace.users,
        public_url=config.trace.public_url,
        access_log=door.access_log,
        limits=configured_limits(config.limits),
        max_concurrent=door.max_concurrent,
        sockets=options.connections.limits,
        drain_delay=options.lifetime.drain_delay,
        shutdown_timeout=options.lifetime.shutdown_timeout,
    )


def kept_sessions(wanted: bool, config: Config, keys: list[Key] | None) -> KeptSessions | None:
    """Return what keeps trajectories, or None; without keys they are everybody's."""
    told = config.trajectories
    if not (wanted or told.enabled):
        return None
    bounds = SessionBounds(
        sessions=told.max_sessions,
        tokens=told.max_tokens,
        key_sessions=told.max_key_sessions,
        key_tokens=told.max_key_tokens,
        seconds=told.max_hours * 3600,
    )
    return KeptSessions(bounds, one_owner=keys is None)


def _engine(options: ServeOptions, weights: dict[str, Any]) -> AbstractAsyncContextManager[Engine]:
    """Return the context in which the engine of these options runs."""
    source, paused = options.source, options.paused
    engine_options = source.engine(
        served_name=options.door.served_model_name,
        settings={**paused.settings, **weights},
        connector=paused.connector,
        splice=not paused.no_splice,
        serves=True,
    )
    return engine_on(engine_options)


def _warn_of_keys(keys: list[Key] | None, host: str) -> None:
    """Say that everybody may do everything, or that nobody may."""
    warning = None
    if keys is None:
        warning = None if is_loopback(host) else OPEN_TO_ALL
    elif all(key.role is not Role.ADMIN for key in keys):
        warning = NO_ADMINISTRATOR
    if warning is not None:
        console.print(warning, style="yellow", highlight=False, soft_wrap=True)


def described(
    model: str, server: str | None, about: Mapping[str, Any], keeps: bool = False
) -> tuple[str, str, Mapping[str, Any]]:
    """Return a recording's title, source and facts; those of a server with a name tell it.

    The page offers the tokens of sessions if the server `keeps` them.
    """
    about = {**about, "trajectories": True} if keeps else about
    title = f"caesura serve, {model}"
    if server is None:
        return title, "serve", about
    return f"{title} on {server}", "serve", {**about, SERVER: server}


def replays_of(engine: Engine, recorder: Recorder | None) -> Replays | None:
    """Return the replays of what is recorded, or None where nothing is."""
    if recorder is None:
        return None
    return Replays(recorder.store, lambda: engine.backend.calibration)


def traces_line(recorder: Recorder | None) -> str:
    """Return a line that says whether and where traces are recorded."""
    if recorder is None:
        return "nothing is recorded"
    what = "with content" if recorder.content else "without content"
    return escape(f"traces, {what}, in {recorder.store.path}")


def _print(url: str) -> None:
    print(url, flush=True)  # a parent process may wait for this line in a pipe


def _announce(url: str, has_page: bool, seconds: float) -> None:
    _print(url)
    tell_systemd("READY=1")
    _say(f"listening at {url} after {seconds:.0f} s")
    if has_page:
        _say(f"the page is at {url.removesuffix('/v1')}/ui/")


def tell_systemd(state: str) -> None:
    """Tell the service manager, where it asked for it (sd_notify); one that is gone is ignored."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram:
            # A leading @ stands for a name that is no file.
            datagram.sendto(state.encode(), re.sub("^@", "\0", address))


def _say(line: str) -> None:
    console.print(line, style="dim", highlight=False, soft_wrap=True)


def kv_lines(machines: Sequence[Machine]) -> Iterator[str]:
    """Yield a line for the KV cache of each engine."""
    for number, each in enumerate(machines):
        whose = f" of engine {number}" if len(machines) > 1 else ""
        yield (
            f"KV cache{whose}: {each.capacity_tokens:,} tokens in blocks of {each.block_size},"
            f" at most {each.slots} running requests"
        )


def tools_line(tools: Registry) -> str:
    """Return a line with the tools that clients may name in `server_tools`."""
    if not tools.names:
        return "no server tools"
    asking = {tool.name for tool in tools if tool.approval}
    named = (f"{name} (after approval)" if name in asking else name for name in tools.names)
    return escape(f"server tools, for requests that name them: {', '.join(named)}")


def agents_line(names: Collection[str]) -> str:
    """Return a line with the agents that clients may name as their model."""
    return escape(f"agents, for requests that name them as model: {', '.join(names)}")


async def ensure_calibrated(engine: Engine) -> None:
    """Measure the engine and save the calibration, unless the engine already has one.

    An engine that cannot be measured serves without a calibration. Raises `EngineFailed`.
    """
    known = engine.backend.calibration
    if known is not None:
        console.print(f"calibrated on {known.date}", style="dim", highlight=False)
        return
    try:
        found = await measure_shown(engine, quick=True)
    except UsageError as reason:
        console.print(
            f"not measured; the scheduler learns while it serves: {reason}", style="yellow"
        )
        return
    await engine.backend.adopt(found)
    path = default_path(found)
    try:
        found.save(path)
    except OSError as error:
        console.print(f"the measurement is not saved: {error}", style="yellow")
        return
    console.print(
        f"{verdict(found)} Saved in {path}; `caesura calibrate` measures longer.",
        style="dim",
        highlight=False,
        soft_wrap=True,
    )
