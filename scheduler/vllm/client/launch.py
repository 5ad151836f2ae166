"""Starting vLLM with Caesura's scheduler, and everything else as vLLM's own configuration says."""

import logging
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from vllm.config import KVTransferConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM

from caesura.intercept.calls.formats import check_together, resolve
from caesura.scheduler.calibration import Calibration, CalibrationError
from caesura.scheduler.errors import EngineFailed, UsageError
from caesura.scheduler.paths import calibration_path
from caesura.scheduler.settings import Settings
from caesura.scheduler.vllm import CaesuraAsyncScheduler, CaesuraScheduler
from caesura.scheduler.vllm.client.engine import VllmEngine, unknown_format
from caesura.scheduler.vllm.compose import SETTINGS_KEY, calibration_of, identity
from caesura.scheduler.vllm.swap.connector import CaesuraConnector

logger = logging.getLogger(__name__)

AUTO = "auto"
"""For `calibration`: the file in the user's cache, if there is one of this very engine."""

_FORMAT = "`--format NAME` says how the model writes calls, and is read off its chat template"
SERVER_OPTIONS = {
    "--tool-call-parser": _FORMAT,
    "--enable-auto-tool-choice": _FORMAT,
    "--chat-template": "save the template as chat_template.jinja in the model's directory",
    "--api-key": "give --api-key to `caesura serve`, before `--`",
    "--host": "give --host to `caesura serve`, before `--`",
    "--port": "give --port to `caesura serve`, before `--`",
}
"""What to do instead of some options of vLLM's HTTP server."""


def parse_engine_args(arguments: Sequence[str]) -> dict[str, Any]:
    """Read vLLM's own command line flags, as in `vllm serve`; unknown ones raise `UsageError`."""
    parser = FlexibleArgumentParser(add_help=False, exit_on_error=False)
    AsyncEngineArgs.add_cli_args(parser)
    defaults = vars(parser.parse_args([]))
    try:
        given, unknown = parser.parse_known_args(list(arguments))
    except Exception as error:
        raise UsageError(f"vLLM does not take these arguments: {error}") from error
    if unknown:
        raise UsageError(_why_unknown(unknown))
    return {key: value for key, value in vars(given).items() if value != defaults[key]}


def _why_unknown(arguments: Sequence[str]) -> str:
    """Return why arguments are no engine options: some are options of vLLM's own HTTP server."""
    # Here and not above: it takes vLLM's server along.
    from vllm.entrypoints.launchers.cli_args import FrontendArgs

    server = FrontendArgs.add_cli_args(FlexibleArgumentParser(add_help=False))
    known = {name for action in server._actions for name in action.option_strings}
    flags = [each.partition("=")[0].replace("_", "-") for each in arguments if each[:2] == "--"]
    flags = [flag for flag in flags if flag in known]
    if not flags:
        return f"vLLM does not know {' '.join(arguments)}; see `vllm serve --help=all`"
    mends = [f"; {SERVER_OPTIONS[flag]}" for flag in flags if flag in SERVER_OPTIONS]
    return (
        f"{', '.join(flags)}: an option of vLLM's HTTP server, which does not run here; only engine"
        f" options are taken{''.join(dict.fromkeys(mends))}"
    )


def start(
    model: str,
    *,
    served_name: str | None = None,
    formats: Sequence[str] | None = None,
    engine_args: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    connector: Mapping[str, Any] | None = None,
) -> VllmEngine:
    """Start an engine; returns when the model is loaded, which takes seconds to minutes.

    `model` is a Hugging Face id or a directory, `engine_args` are fields of vLLM's
    `AsyncEngineArgs`. The scheduler class follows what vLLM decides on asynchronous scheduling.
    `settings` are the scheduler's (`caesura.scheduler.settings`), with `auto` for a `calibration`
    that is used if there is one; `connector` are our KV connector's
    (`caesura.scheduler.vllm.swap.connector`). Engine arguments that name others win.
    Raises `EngineFailed` if the engine does not come up, and `UsageError` for what vLLM refuses
    and for a calibration of another engine.
    """
    name = served_name or Path(model).name
    _check(model, formats or ())
    try:
        # vLLM labels its metrics with the served name.
        ours = caesura_args(settings or {}, connector or {})
        given = {"served_model_name": name, **ours, **(engine_args or {})}
        given["additional_config"] = {**ours["additional_config"], **given["additional_config"]}
        args = AsyncEngineArgs(model=model, **given)
        config = args.create_engine_config(usage_context=UsageContext.ENGINE_CONTEXT)
    except (ValueError, TypeError, OSError) as error:
        raise UsageError(f"vLLM cannot serve {model!r}: {error}") from error
    calibration = _calibration(config)
    config.scheduler_config.scheduler_cls = (
        CaesuraAsyncScheduler if config.scheduler_config.async_scheduling else CaesuraScheduler
    )
    try:
        with _deaf_to_ctrl_c():
            llm = AsyncLLM.from_vllm_config(
                config,
                usage_context=UsageContext.ENGINE_CONTEXT,
                enable_log_requests=False,
                disable_log_stats=args.disable_log_stats,
            )
    except (RuntimeError, ValueError, OSError) as error:
        # If it is what the scheduler was given, say that: vLLM tells of no reasons.
        _calibration(config)
        raise EngineFailed(
            f"the engine did not start: {error} (VLLM_LOGGING_LEVEL=INFO shows its log)"
        ) from error
    try:
        engine = VllmEngine(llm, name, formats, calibration)
    except BaseException:
        llm.shutdown()
        raise
    if not engine.formats and formats is None:
        logger.warning("%s", unknown_format(name))
    return engine


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Have processes that are started meanwhile not hear Ctrl-C: they inherit the signal mask.

    A terminal sends it to all of them, and vLLM's would drop every request. Whoever has started
    the engine decides when it ends, and ends it with SIGTERM.
    """
    # It takes SIGINT off the mask when it starts, which it does before the first process.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _calibration(config: Any) -> Calibration | None:
    """Read the calibration that the scheduler will read, and raise `UsageError` in its stead."""
    given = config.additional_config.get(SETTINGS_KEY)
    try:
        if isinstance(given, dict) and given.get("calibration") == AUTO:
            given["calibration"] = None
            path = calibration_path(**identity(config))
            try:
                Calibration.load(path).check(**identity(config))
                given["calibration"] = str(path)
            except CalibrationError as reason:
                logger.info("the scheduler learns by itself what steps cost: %s", reason)
        return calibration_of(config)
    except CalibrationError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def caesura_args(settings: Mapping[str, Any], connector: Mapping[str, Any]) -> dict[str, Any]:
    """Return the engine arguments that make vLLM ours: settings and KV connector."""
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


def _check(model: str, formats: Sequence[str]) -> None:
    """Find mistakes that do not take an engine to find."""
    if Path(model).is_absolute() and not Path(model).is_dir():
        raise UsageError(f"there is no model directory {model}")
    try:
        resolve(formats, ())
        check_together(formats)
    except ValueError as error:
        raise UsageError(str(error)) from error


def is_cpu() -> bool:
    """Whether vLLM runs on the CPU here."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())
