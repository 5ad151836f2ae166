"""Starting vLLM. No other module of the runtime imports vLLM's adapter."""

import asyncio
import logging
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from caesura.runtime.engine import Engine
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.receiver import receiver_of_process
from caesura.runtime.recording.recorder import Recorder
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.model_facts import LayoutFacts, ModelFacts
from caesura.scheduler.paths import pauses_path
from caesura.scheduler.vllm_server import VllmServer

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from caesura.scheduler.vllm.client.engine import VllmEngine

# The path starts at the package, since a development checkout may link to this module.
BUNDLED_MODEL = str(files("caesura").joinpath("models", "caesura-tiny"))

BUNDLED_ARGS: dict[str, Any] = {
    "max_model_len": 2048,
    # The bundled model is trained in float32, and small enough to run in it.
    "dtype": "float32",
    "kv_cache_memory_bytes": 256 << 20,
    "use_tqdm_on_load": False,
    # Compiling takes longer than the short runs that this model is for.
    "enforce_eager": True,
}
# By default the CPU build's KV cache takes nearly all of the machine's memory.
CPU_ARGS: dict[str, Any] = {"kv_cache_memory_bytes": 4 << 30, "enforce_eager": True}
CPU_BLOCK_SIZE = 32


# A module whose warnings about other libraries do not concern the user.
NOISY_MODULE = "vllm.triton_utils.dispatcher"
WARNINGS = (FutureWarning, DeprecationWarning)

LOG = logging.getLogger(__name__)
NEWS_SECONDS = 15.0
"""How often the log says that an engine is still starting."""

_STARTING: set[asyncio.Future[Engine]] = set()


def prepare_environment(model: str | None, serves: bool = False) -> None:
    """Set the environment variables that vLLM reads when it is imported, unless they are set.

    The engine's process inherits them. `VLLM_LOGGING_LEVEL=INFO` shows vLLM's log.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_LOGS", "-torch._library.triton")
    os.environ.setdefault(
        "PYTHONWARNINGS", ",".join(f"ignore::{each.__name__}:{NOISY_MODULE}" for each in WARNINGS)
    )
    for category in WARNINGS:
        warnings.filterwarnings("ignore", category=category, module=NOISY_MODULE)
    if model is None:
        # The model is too small to share among threads: four layers of 256. Their barriers spin.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if serves:
        # As vLLM's own server does: a process of many threads cannot safely be forked.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")


async def start_engine(model: str | None = None, **choices: Any) -> Engine:
    """Start vLLM on a model: a Hugging Face id, a directory, or None for the bundled model.

    `choices` are the other fields of `EngineOptions`: `formats`, `vllm_args`, `served_name`,
    `settings`, `connector`, `splice`, `thinking_as_text`, `special_tokens_in_text`, `serves`.
    See `start`.
    """
    return await start(EngineOptions(model, **choices))


async def start(options: EngineOptions) -> Engine:
    """Start vLLM with these options.

    By default the engine uses a calibration of it from the user's cache (setting `calibration`),
    and keeps the observed pauses of tools in a file (`pauses`). None turns either off.

    Raises `EngineFailed` if the engine does not start, and `UsageError` for invalid arguments.
    """
    model = options.model
    refuse_url(model)
    prepare_environment(model, options.serves)
    receiver_of_process()  # first: a vLLM that traces changes these variables

    loop = asyncio.get_running_loop()

    def launch() -> Engine:
        # Imported here, since vLLM is optional and slow to import.
        try:
            from caesura.scheduler.vllm.client import launch as adapter
        except ImportError as error:
            raise EngineFailed(
                f"vLLM cannot be imported ({error}): run `caesura doctor` to see how to fix it"
            ) from error

        by_default = {"calibration": "auto", "pauses": str(pauses_path())}
        settings = {**by_default, **(options.settings or {})}
        chosen = replace(options, model=model or BUNDLED_MODEL, settings=settings)
        engine = adapter.start(chosen, default_args(model))
        engine.loop = loop
        return engine

    return await _told(model or "the bundled model", _in_thread(launch))


def refuse_url(model: str | None) -> None:
    """Raise `UsageError` for the address of a server where a model is asked for."""
    if model is not None and "://" in model:
        raise UsageError(
            f"{model!r} is an address, and a model is asked for: name a Hugging Face id or a"
            f" directory, and an engine starts here. An agent uses a server by Agent({model!r})"
        )


async def _told(name: str, starting: Coroutine[Any, Any, Engine]) -> Engine:
    """Return the engine that starts, and log its start as it goes on."""
    began = time.monotonic()

    async def news() -> None:
        while True:
            await asyncio.sleep(NEWS_SECONDS)
            LOG.info("%s is still loading after %.0f s", name, time.monotonic() - began)

    LOG.info("starting vLLM with %s", name)
    telling = asyncio.create_task(news())
    try:
        engine = await starting
    finally:
        telling.cancel()
    LOG.info("%s is loaded after %.0f s", name, time.monotonic() - began)
    return engine


def _refuse_in_import() -> None:
    """Raise `UsageError` in a process that is importing the program that spawned it."""
    process = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):  # what `multiprocessing` itself asks at a start
        raise UsageError(
            f"{process.name}, a process that this program has started, imports the program again"
            " and comes to the start of an engine: put the call under"
            ' `if __name__ == "__main__":`'
        )


async def _in_thread(launch: Callable[[], Engine]) -> Engine:
    """Start an engine in a thread, so that the event loop stays free for progress and Ctrl-C.

    A cancelled start stops the engine's processes, which ignore Ctrl-C.
    """
    _refuse_in_import()
    before = set(multiprocessing.active_children())
    starting = asyncio.ensure_future(asyncio.to_thread(launch))
    _STARTING.add(starting)
    starting.add_done_callback(_STARTING.discard)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        while not starting.done():
            # With two starts under way, the new processes cannot be told apart.
            alone = len(_STARTING) == 1
            for child in set(multiprocessing.active_children()) - before if alone else ():
                child.terminate()
            await asyncio.wait([starting], timeout=0.2)
        if starting.exception() is None:
            await starting.result().close()
        raise


def record(engine: Engine, recorder: Recorder) -> Callable[[], None]:
    """Send the records of this process's engines to a recorder; return a function that stops it.

    An engine other than vLLM's has no records.
    """

    def take(rank: int, records: list[dict[str, Any]]) -> None:
        recorder.add([{"engine": rank, **each} for each in records])

    return engine.backend.listen(take)


async def facts_of(engine: Engine) -> dict[str, Any]:
    """Return the facts about an engine that its recording holds. Raises `EngineFailed`."""
    return {"model": engine.model, "lanes": "exact", **await engine.backend.facts()}


def server_around(engine: "VllmEngine", app: "ASGIApp") -> VllmServer:
    """Return vLLM's own HTTP application, which listens, and in which Caesura's routes are."""
    from caesura.scheduler.vllm.client.api_server import keeps_budgets, parses_alone

    return VllmServer(
        app,
        engine.max_characters,
        parses_alone=parses_alone(engine),
        keeps_budgets=keeps_budgets(engine),
        listens=True,
    )


async def inside(
    llm: Any,
    served_name: str | Sequence[str],
    server_options: Mapping[str, Any] | None = None,
    adapters: Mapping[str, Any] | None = None,
) -> "VllmEngine":
    """Return an engine over an `AsyncLLM` that another server has started and will close.

    `server_options` are those of that server, and `adapters` its LoRA adapters by name. Raises
    `UsageError` if the scheduler is not Caesura's.
    """
    from caesura.scheduler.vllm.client.engine import VllmEngine
    from caesura.scheduler.vllm.client.launch import check_scheduler

    check_scheduler(llm.vllm_config.scheduler_config)
    engine = VllmEngine(llm, EngineOptions(served_name=served_name), server_options=server_options)
    engine.adapters = {} if adapters is None else adapters
    return engine


def facts_of_model(model: str, formats: Sequence[str] | None) -> ModelFacts:
    """Return what a model's files tell of its calls and its thinking, without an engine.

    `formats` are those that a user has named. Raises `UsageError` for a model without a readable
    tokenizer and for unknown formats.
    """
    from caesura.scheduler.vllm.client import model_formats

    return model_formats.facts_of_model(model, None if formats is None else tuple(formats))


def layout_of_model(model: str) -> LayoutFacts:
    """Return the groups of a model's KV cache, and what is done with it at a pause.

    Neither weights nor a GPU are needed. Raises `UsageError` for a model whose configuration cannot
    be read or is refused.
    """
    from caesura.scheduler.vllm.client import model_layout

    return model_layout.layout_of_model(model, default_args(model))


def default_args(model: str | None) -> dict[str, Any]:
    """Return Caesura's defaults for fields of vLLM's `AsyncEngineArgs`.

    On a CPU this also sets an option that vLLM reads only from the environment.
    """
    from caesura.scheduler.vllm.client.launch import is_cpu

    args: dict[str, Any] = {}
    if is_cpu():
        # The worker then runs in the engine's process, which saves one start of Python.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        args |= CPU_ARGS | {"block_size": CPU_BLOCK_SIZE}
    if model is None:
        args |= BUNDLED_ARGS
    return args
