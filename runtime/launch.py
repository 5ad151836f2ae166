"""Starting the real engine: the one place where the runtime meets vLLM."""

import asyncio
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from caesura.runtime.engine import Engine
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.tracing.setup import from_environment
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.paths import pauses_path

if TYPE_CHECKING:
    from caesura.scheduler.vllm.client.engine import VllmEngine

# By the package and not by this file, which a development checkout reaches through a symbolic link.
BUNDLED_MODEL = str(files("caesura").joinpath("models", "caesura-tiny"))

BUNDLED_ARGS: dict[str, Any] = {
    "max_model_len": 2048,
    # It is trained in float32 and small enough to stay there.
    "dtype": "float32",
    "kv_cache_memory_bytes": 256 << 20,
    "use_tqdm_on_load": False,
    # Compiling takes longer than all that anybody would ask of it.
    "enforce_eager": True,
}
# The KV cache of the CPU build would otherwise take nearly all of the machine's memory.
CPU_ARGS: dict[str, Any] = {"kv_cache_memory_bytes": 4 << 30, "enforce_eager": True}
CPU_BLOCK_SIZE = 32


# A module whose warnings about other libraries say nothing to whoever starts an engine.
NOISY_MODULE = "vllm.triton_utils.dispatcher"
WARNINGS = (FutureWarning, DeprecationWarning)

_STARTING: set[asyncio.Future[Engine]] = set()


def prepare_environment(model: str | None) -> None:
    """Set what vLLM reads from the environment when it is imported; what is set already stays.

    The engine's process inherits it. `VLLM_LOGGING_LEVEL=INFO` shows vLLM's log.
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
        # Four layers of 256 leave nothing to share among threads, whose barriers spin.
        os.environ.setdefault("OMP_NUM_THREADS", "1")


async def start_engine(
    model: str | None = None,
    *,
    formats: Sequence[str] | None = None,
    vllm_args: Sequence[str] = (),
    served_name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    connector: Mapping[str, Any] | None = None,
) -> Engine:
    """Start vLLM on a model: a Hugging Face id, a directory, or None (the bundled one).

    `formats` name how the model writes calls (None: read off its chat template), `vllm_args` are
    vLLM's own flags as in `vllm serve`, and go before Caesura's defaults. `settings` say how paused
    requests are treated (`caesura.scheduler.settings.Settings`), `connector` how much host memory
    they may have (`host_gib`) and which file takes the scheduler's records (`records`). Unless
    `settings` say otherwise, a calibration is used if the user's cache has one of this engine
    (`calibration`), and what is observed of tools' pauses is kept (`pauses`); None is neither.

    Raises `EngineFailed` if it does not start, and `UsageError` for what vLLM does not take.
    """
    prepare_environment(model)
    from_environment()  # as it is now: a vLLM that traces sets variables that our spans go by

    def launch() -> Engine:
        # Here and not above: vLLM is optional, and slow to import.
        try:
            from caesura.scheduler.vllm.client.launch import parse_engine_args, start
        except ImportError as error:
            raise EngineFailed(
                f"vLLM cannot be imported ({error}); `caesura doctor` says the mend"
            ) from error

        return start(
            model or BUNDLED_MODEL,
            served_name=served_name,
            formats=formats,
            engine_args={**default_args(model), **parse_engine_args(vllm_args)},
            settings={"calibration": "auto", "pauses": str(pauses_path()), **(settings or {})},
            connector=connector,
        )

    return await _in_thread(launch)


async def _in_thread(launch: Callable[[], Engine]) -> Engine:
    """Start an engine in a thread, so that whoever waits can be interrupted and show something.

    An engine whose start is cancelled is stopped: its processes do not hear Ctrl-C.
    """
    before = set(multiprocessing.active_children())
    starting = asyncio.ensure_future(asyncio.to_thread(launch))
    _STARTING.add(starting)
    starting.add_done_callback(_STARTING.discard)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        while not starting.done():
            # With another start under way, nobody knows whose process is whose.
            alone = len(_STARTING) == 1
            for child in set(multiprocessing.active_children()) - before if alone else ():
                child.terminate()
            await asyncio.wait([starting], timeout=0.2)
        if starting.exception() is None:
            await starting.result().close()
        raise


async def calibrate(
    engine: Engine, quick: bool, progress: Callable[[float, str], None]
) -> Calibration:
    """Measure an engine that `start_engine` started and that nobody uses yet.

    `progress` is told what is done, from 0 to 1, and what is being measured. Raises `UsageError`
    for an engine that cannot be measured, and `EngineFailed`.
    """
    from caesura.scheduler.vllm.client.measuring import measure

    return await measure(_real(engine), quick, progress)


async def adopt(engine: Engine, calibration: Calibration) -> None:
    """Have the scheduler of a running engine go by a calibration."""
    from caesura.scheduler.vllm.client.measuring import adopt

    await adopt(_real(engine), calibration)


def calibration_of(engine: Engine) -> Calibration | None:
    """Return what the engine's scheduler goes by, if that was measured."""
    return _real(engine).calibration


def record(engine: Engine, recorder: Recorder) -> Callable[[], None]:
    """Have a recorder get the records of this process's engines; return how to stop.

    An engine that is none of vLLM's has none.
    """
    if not _is_real(engine):
        return lambda: None
    from caesura.scheduler.vllm.records.export import listen

    def take(rank: int, records: list[dict[str, Any]]) -> None:
        recorder.add([{"engine": rank, **each} for each in records])

    return listen(take)


async def facts_of(engine: Engine) -> dict[str, Any]:
    """What is to be known of an engine that a recording is made of. Raises `EngineFailed`."""
    facts: dict[str, Any] = {"model": engine.model, "lanes": "exact"}
    if not _is_real(engine):
        return facts
    real = _real(engine)
    state = await real.state()
    told = ("handling", "host_blocks")
    facts |= {name: state[name] for name in told} | {"total_blocks": state["blocks_total"]}
    facts["block_size"] = real.llm.vllm_config.cache_config.block_size
    if real.calibration is not None:
        facts["machine"] = real.calibration.device
    return facts


def _is_real(engine: Engine) -> bool:
    """Whether it is one of vLLM's, found out without importing that."""
    adapter = sys.modules.get("caesura.scheduler.vllm.client.engine")
    return adapter is not None and isinstance(engine, adapter.VllmEngine)


def _real(engine: Engine) -> "VllmEngine":
    from caesura.scheduler.vllm.client.engine import VllmEngine

    if not isinstance(engine, VllmEngine):
        raise UsageError(f"{engine.model} does not run in vLLM: there is nothing to measure")
    return engine


def default_args(model: str | None) -> dict[str, Any]:
    """Fields of vLLM's `AsyncEngineArgs` that differ from vLLM's own defaults.

    On a CPU this also sets what vLLM takes from the environment only.
    """
    from caesura.scheduler.vllm.client.launch import is_cpu

    args: dict[str, Any] = {}
    if is_cpu():
        # Keeps the worker inside the engine's process: one start of Python less to wait for.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        args |= CPU_ARGS | {"block_size": CPU_BLOCK_SIZE}
    if model is None:
        args |= BUNDLED_ARGS
    return args
