"""`caesura serve`: the engine, its supervisor and the server, put together by the options."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape

from caesura.runtime.audit import AuditLog
from caesura.runtime.cli.calibrate import default_path, measure_shown, verdict
from caesura.runtime.cli.engine import engine_on
from caesura.runtime.cli.options import ModelOptions, Traces
from caesura.runtime.cli.serve_options import (
    AuditOptions,
    ConnectionOptions,
    Kept,
    LifetimeOptions,
    Scheduling,
    ServerOptions,
)
from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.runtime.recorded import recorded
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.run.limits import configured_limits
from caesura.runtime.server import serve
from caesura.runtime.server.about import loading_app
from caesura.runtime.server.http.listener import open_listener
from caesura.runtime.server.keys.access import check_door, is_loopback
from caesura.runtime.server.keys.key import Key, weights_of
from caesura.runtime.server.keys.rules import Role
from caesura.runtime.server.listen import DoorOptions
from caesura.runtime.server.load.gate import Machine, QueueBound
from caesura.runtime.supervision.readiness import Phase, Readiness
from caesura.runtime.supervision.supervisor import (
    DEFAULT_RULES,
    EngineProcess,
    RecordedRestarts,
    Supervisor,
)
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
        Machine(each["block_size"], each["blocks"] * each["block_size"], each["most_running"])
        for each in sizes
    ]
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


async def serve_model(
    source: ModelOptions,
    server: ServerOptions,
    kept: Kept,
    connections: ConnectionOptions,
    audits: AuditOptions,
    lifetime: LifetimeOptions,
    paused: Scheduling,
    traces: Traces,
) -> None:
    """Serve until interrupted; requests in flight then have time to finish.

    A taken port is found before the engine starts. Raises `EngineLost` once it is given up.
    """
    for options in (paused, traces, kept):
        options.check()
    keys = server.keys()
    check_door(keys, server.allowed_host or (), server.allowed_origin or ())
    read = Config.load(source.config)
    readiness = Readiness(time.monotonic, Phase.LOADING)
    first, limits = loading_app(readiness), connections.limits
    async with (
        open_listener(server.host, server.port, limits, first) as listener,
        read.toolset() as toolset,
        _engine(source, server, paused, weights_of(keys)) as engine,
        engine.backend.server() as vllm,
        queue_bound(engine, server.max_queue_seconds) as queue,
    ):
        readiness.engine_started()
        if not paused.no_calibrate:
            await ensure_calibrated(engine)
        _say(tools_line(toolset.registry))
        # Recording starts here, so that it holds nothing of a calibration.
        about = (_title(engine), "serve", paused.about)
        async with recorded(engine, traces, read, *about) as recorder:
            _say(traces_line(recorder))
            _warn_of_keys(keys, server.host)
            readiness.enter(Phase.READY)
            await serve(
                engine,
                toolset.registry,
                server.host,
                server.port,
                **door(server, connections, keys, audits.log(len(toolset.registry) > 0), queue),
                artifacts=toolset.services.artifacts,
                limits=configured_limits(read.limits),
                people=people_of(toolset.services),
                recorder=recorder,
                store=kept.store(),
                journal=kept.journal_store(),
                allow_private=read.allow_private,
                vllm=vllm,
                replays=replays_of(engine, None if server.no_what_if else recorder),
                announce=_announce if recorder else _print,
                listener=listener,
                server_name=server.server_name,
                supervisor=supervisor_of(engine, vllm, readiness, lifetime, queue, recorder),
                drain_delay=lifetime.drain_delay,
                shutdown_timeout=lifetime.shutdown_timeout,
            )


def _engine(
    source: ModelOptions, server: ServerOptions, paused: Scheduling, weights: dict[str, Any]
) -> AbstractAsyncContextManager[Engine]:
    """Return the context in which the engine of these options runs."""
    options = source.engine(
        served_name=server.served_model_name,
        settings={**paused.settings, **weights},
        connector=paused.connector,
        splice=not paused.no_splice,
        serves=True,
    )
    return engine_on(options)


def door(
    server: ServerOptions,
    connections: ConnectionOptions,
    keys: list[Key] | None,
    audit: AuditLog | None,
    queue: QueueBound,
) -> DoorOptions:
    """Return the options that say who may use the server, and how much of it."""
    return {
        "api_key": keys,
        "allowed_hosts": server.allowed_host or (),
        "allowed_origins": server.allowed_origin or (),
        "shared_prefix_cache": server.shared_prefix_cache,
        "max_concurrent": server.max_concurrent,
        "sockets": connections.limits,
        "audit": audit,
        "queue": queue,
    }


def _warn_of_keys(keys: list[Key] | None, host: str) -> None:
    """Say that everybody may do everything, or that nobody may."""
    warning = None
    if keys is None:
        warning = None if is_loopback(host) else OPEN_TO_ALL
    elif all(key.role is not Role.ADMIN for key in keys):
        warning = NO_ADMINISTRATOR
    if warning is not None:
        console.print(warning, style="yellow", highlight=False, soft_wrap=True)


def _title(engine: Engine) -> str:
    return f"caesura serve, {engine.model}"


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


def _announce(url: str) -> None:
    _print(url)
    _say(f"the page is at {url.removesuffix('/v1')}/ui/")


def _say(line: str) -> None:
    console.print(line, style="dim", highlight=False, soft_wrap=True)


def tools_line(tools: Registry) -> str:
    """Return a line with the tools that clients may name in `server_tools`."""
    if not tools.names:
        return "no server tools"
    asking = {tool.name for tool in tools if tool.approval}
    named = (f"{name} (after approval)" if name in asking else name for name in tools.names)
    return escape(f"server tools, for requests that name them: {', '.join(named)}")


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
