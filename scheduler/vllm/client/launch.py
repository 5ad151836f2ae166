"""Starts vLLM with Caesura's scheduler and connector, and vLLM's own configuration otherwise."""

import copy
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from vllm.config import KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from caesura.intercept.calls.formats import check_together
from caesura.processes.spawned import deaf_children, names_program, program_runs_once
from caesura.scheduler.calibration import Calibration, CalibrationError
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.errors import EngineFailed, UsageError
from caesura.scheduler.paths import calibration_path
from caesura.scheduler.settings import Settings
from caesura.scheduler.vllm import CaesuraAsyncScheduler, CaesuraScheduler
from caesura.scheduler.vllm.client.engine import VllmEngine, given_template, unknown_format
from caesura.scheduler.vllm.client.model_formats import (
    check_files,
    load_plugin,
    named_formats,
    with_parser,
)
from caesura.scheduler.vllm.client.options import WHITE_SPACE, parse
from caesura.scheduler.vllm.client.tapped_llm import TappedLLM
from caesura.scheduler.vllm.engine.compose import SETTINGS_KEY, calibration_of, identity
from caesura.scheduler.vllm.engine.connector import CaesuraConnector
from caesura.scheduler.vllm.engine.scheduler import PausingScheduler
from caesura.scheduler.vllm.tokenizer import format_names, template_of
from caesura.scheduler.vllm.wire import share_by_environment

logger = logging.getLogger(__name__)

AUTO = "auto"
"""Value of `calibration` that selects the file in the user's cache, if it fits this engine."""

VLLMS_CPU_WORKER = "vllm.v1.worker.cpu_worker.CPUWorker"
OWN_CPU_WORKER = "caesura.scheduler.vllm.engine.port.cpu_worker.SeededCPUWorker"

UNGUARDED = (
    "; its process imports the program again, for what the configuration names in `__main__`: put"
    ' the call that starts the engine under `if __name__ == "__main__":`'
)
SUPPORTED = "Supported architectures:"
"""What vLLM's refusal of a model goes on with, for hundreds of names."""

PIPELINE_ON_CPU: dict[str, Any] = {
    "enforce_eager": False,
    "compilation_config": {"mode": 2, "backend": "eager"},
}
"""Arguments with which vLLM's CPU build runs a pipeline, and compiles nothing all the same.

A later stage's inputs are made in the warm-up (`CPUModelRunner.warming_up_model`), which is left
out with `enforce_eager`. The first request would then end the engine.
"""


def for_cpu(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that vLLM's CPU build can run; raise `UsageError` if there are none."""
    backend = given.get("distributed_executor_backend")
    if backend == "ray":
        raise UsageError(
            f"--distributed-executor-backend {backend}: vLLM's CPU build has no support for Ray's"
            " executor; use mp, or leave it out"
        )
    several = given.get("pipeline_parallel_size", 1) > 1
    return {**given, **(PIPELINE_ON_CPU if several and given.get("enforce_eager") else {})}


def start(options: EngineOptions, engine_args: Mapping[str, Any] | None = None) -> VllmEngine:
    """Start an engine and return it once the model is loaded, after seconds to minutes.

    `engine_args` are fields of vLLM's `AsyncEngineArgs`, which the flags among the options
    override. The model must be named. A `calibration` of `auto` among the settings uses the cached
    file, if it fits. The chat template of vLLM's server is the engine's too. The scheduler class
    depends on vLLM's choice of asynchronous scheduling. Raises `EngineFailed` if the engine does
    not start. Raises `UsageError` for arguments that vLLM refuses and for a calibration of another
    engine.
    """
    share_by_environment()
    model, formats = str(options.model), options.formats
    parsed = parse(options.vllm_args, options.serves)
    check_given(parsed.engine)
    load_plugin(parsed.server.get("tool_parser_plugin"))
    check_model(model, formats or ())
    given_template(parsed.server)  # a mistake is told before the model is loaded
    try:
        # vLLM labels its metrics with the served name.
        ours = caesura_args(options.settings or {}, options.connector or {})
        named = {"served_model_name": list(options.names)}
        given = {**named, **ours, **(engine_args or {}), **parsed.engine}
        given = given if not is_cpu() else for_cpu(given)
        given["additional_config"] = {**ours["additional_config"], **given["additional_config"]}
        args = AsyncEngineArgs(model=model, **given)
        config = args.create_engine_config(usage_context=UsageContext.ENGINE_CONTEXT)
    except (OSError, ValueError, TypeError) as error:
        # The message of a model that is not here or cannot be fetched says it all.
        cause = None if isinstance(error, OSError) else error
        raise UsageError(refusal(model, error)) from cause
    calibration = _calibration(config)
    _use_own_classes(config)
    _tell_formats(config, chosen_formats(config.model_config, formats, parsed.server))
    launch = partial(_started, config, args, compact_json=WHITE_SPACE not in given)
    llm = launch()
    try:
        engine = VllmEngine(
            llm, options, calibration=calibration, server_options=parsed.server, start=launch
        )
    except BaseException:
        llm.shutdown()
        raise
    if not engine.language.formats and formats is None:
        logger.warning("%s", unknown_format(options.name))
    return engine


def _use_own_classes(config: VllmConfig) -> None:
    """Let vLLM make Caesura's scheduler, and its worker where vLLM's own one has a fault."""
    config.scheduler_config.scheduler_cls = (
        CaesuraAsyncScheduler if config.scheduler_config.async_scheduling else CaesuraScheduler
    )
    if config.parallel_config.worker_cls == VLLMS_CPU_WORKER:
        config.parallel_config.worker_cls = OWN_CPU_WORKER


def chosen_formats(
    model_config: ModelConfig, formats: Sequence[str] | None, server_options: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """Return the formats of calls that the user has chosen, by name, parser or chat template.

    None means those that the model's own template shows. Raises `UsageError` for unknown names.
    """
    if formats is not None:
        return named_formats(formats)
    template, parser = given_template(server_options), server_options.get("tool_call_parser")
    if template is None and parser is None:
        return None
    tokenizer = cached_tokenizer_from_config(model_config)
    shown = template_of(tokenizer) if template is None else template
    return with_parser(format_names(tokenizer, shown), parser)


def _tell_formats(config: VllmConfig, names: Sequence[str] | None) -> None:
    """Let the scheduler detect the calls of client-side tools in these formats, unless None."""
    if names is not None:
        told = config.additional_config.get(SETTINGS_KEY) or {}
        config.additional_config[SETTINGS_KEY] = {"formats": names, **told}


def _started(config: VllmConfig, args: AsyncEngineArgs, *, compact_json: bool) -> AsyncLLM:
    """Start the engine's process, and return vLLM's client of it. May be called again.

    With `compact_json`, grammars of JSON allow little white space, on all routes.
    """
    # A start writes into its configuration what it finds out, such as ports.
    config = copy.deepcopy(config)
    needs_program = names_program(config)
    try:
        with deaf_children(), nullcontext() if needs_program else program_runs_once():
            llm = TappedLLM.from_vllm_config(
                config,
                usage_context=UsageContext.ENGINE_CONTEXT,
                enable_log_requests=args.enable_log_requests,
                aggregate_engine_logging=args.aggregate_engine_logging,
                disable_log_stats=args.disable_log_stats,
            )
    except (RuntimeError, ValueError, OSError) as error:
        # vLLM gives no reason, so check first whether the calibration file is the cause.
        _calibration(config)
        raise EngineFailed(
            f"the engine did not start: {error} (VLLM_LOGGING_LEVEL=INFO shows its log)"
            f"{UNGUARDED if needs_program else ''}"
        ) from error
    llm.compact_json = compact_json
    return llm


def check_scheduler(config: SchedulerConfig) -> None:
    """Raise `UsageError` if an engine's scheduler is not Caesura's."""
    if not issubclass(config.get_scheduler_cls(), PausingScheduler):
        raise UsageError(
            f"the engine's scheduler is {config.scheduler_cls}: start it with"
            " --scheduler-cls caesura.scheduler.vllm.CaesuraAsyncScheduler"
        )


def _calibration(config: Any) -> Calibration | None:
    """Return the calibration that the scheduler will read; raise `UsageError` if it is invalid."""
    given = config.additional_config.get(SETTINGS_KEY)
    try:
        if isinstance(given, dict) and given.get("calibration") == AUTO:
            given["calibration"] = None
            path = calibration_path(**identity(config))
            try:
                Calibration.load(path).check(**identity(config))
                given["calibration"] = str(path)
            except CalibrationError as reason:
                logger.info("no calibration, so the scheduler learns the step cost: %s", reason)
        return calibration_of(config)
    except CalibrationError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def caesura_args(settings: Mapping[str, Any], connector: Mapping[str, Any]) -> dict[str, Any]:
    """Return the engine arguments for Caesura's settings and its KV connector."""
    Settings.from_mapping(settings)
    return {
        "additional_config": {SETTINGS_KEY: dict(settings)},
        "kv_transfer_config": KVTransferConfig(
            kv_connector=CaesuraConnector.__name__,
            kv_connector_module_path=CaesuraConnector.__module__,
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config=dict(connector),
        ),
    }


_OWN = {
    "scheduler_cls": "Caesura's scheduler, without which nothing pauses",
    "kv_transfer_config": "Caesura's connector, which swaps paused KV and writes records",
    "kv_offloading_size": "Caesura's connector; the host memory for KV is `host_gib`, --host-gib",
}
"""Options of the engine that would replace a part of Caesura, and what."""


def check_given(given: Mapping[str, Any]) -> None:
    """Raise `UsageError` for flags of vLLM that would replace what Caesura puts there itself."""
    for name, own in _OWN.items():
        if given.get(name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} would replace {own}: leave it out, or use `vllm serve`")
    if SETTINGS_KEY in (given.get("additional_config") or {}):
        raise UsageError(
            f"--additional-config would replace the settings of Caesura by its {SETTINGS_KEY!r}:"
            " give them as options of `caesura serve` before `--`, or as `settings` in Python"
        )
    if is_cpu() and given.get("worker_cls", OWN_CPU_WORKER) != OWN_CPU_WORKER:
        raise UsageError(
            f"--worker-cls would replace {OWN_CPU_WORKER}, which keeps a seeded request whose"
            " prompt is split over steps from ending the engine on CPUs: leave it out"
        )


def check_model(model: str, formats: Sequence[str]) -> None:
    """Raise `UsageError` for a folder without a model, or formats that do not fit together."""
    check_files(model)
    try:
        check_together(named_formats(formats))
    except ValueError as error:
        raise UsageError(str(error)) from error


def refusal(model: str, error: Exception) -> str:
    """Return in a sentence why vLLM refuses a model or its arguments."""
    reasons = [str(error)]
    if isinstance(error, ValidationError):
        reasons = [_reason(each) for each in error.errors(include_context=False)]
    told = (each.partition("\n\n")[0].partition(SUPPORTED)[0] for each in reasons)
    return f"vLLM cannot serve {model!r}: {'; '.join(' '.join(each.split()) for each in told)}"


def _reason(found: ErrorDetails) -> str:
    """Return an error of pydantic's, with the field's name unless vLLM has worded it."""
    words = found["msg"].removeprefix("Value error, ")
    return words if words != found["msg"] else f"{'.'.join(map(str, found['loc']))}: {words}"


def is_cpu() -> bool:
    """Return whether vLLM runs on the CPU on this machine."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())
