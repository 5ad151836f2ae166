"""What a scheduler is equipped with, from vLLM's configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import vllm
from vllm.platforms import current_platform

from caesura.intercept.cost import PRIOR, CostModel
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.settings import Settings
from caesura.scheduler.vllm.keeper import Keeper
from caesura.scheduler.vllm.memory import PauseMemory
from caesura.scheduler.vllm.swap.connector import CaesuraConnector

SETTINGS_KEY = "caesura"
"""In vLLM's `additional_config`: what `Settings` are read from."""


def make_keeper(scheduler: Any) -> Keeper:
    """Make the keeper of a scheduler's paused KV.

    Raises `ValueError` for bad settings, and for a calibration that another engine was measured
    with.
    """
    given = scheduler.vllm_config.additional_config
    given = given.get(SETTINGS_KEY, {}) if isinstance(given, Mapping) else {}
    if not isinstance(given, Mapping):
        raise ValueError(f"additional_config.{SETTINGS_KEY} must be an object")
    settings = Settings.from_mapping(given)
    connector = scheduler.connector
    planner, outbox = None, None
    if isinstance(connector, CaesuraConnector):
        planner = connector.planner
        if settings.records and scheduler.log_stats:
            outbox = connector.outbox
        # What cannot be loaded is recomputed: there is always a way back.
        scheduler.recompute_kv_load_failures = True
    return Keeper(
        scheduler,
        settings,
        _cost_model(scheduler.vllm_config, settings),
        PauseMemory(settings.pauses),
        planner,
        outbox,
    )


def identity(vllm_config: Any) -> dict[str, str]:
    """Name what a calibration holds for: model, dtype, device and vLLM's version."""
    model = Path(vllm_config.model_config.model)
    workers = vllm_config.parallel_config.world_size
    return {
        "model": model.name if model.is_dir() else vllm_config.model_config.model,
        "dtype": str(vllm_config.model_config.dtype).removeprefix("torch."),
        "device": f"{workers} x {current_platform.get_device_name()}",
        "vllm_version": vllm.__version__,
    }


def _cost_model(vllm_config: Any, settings: Settings) -> CostModel:
    """Return what was measured of this engine; else a guess, which corrects itself."""
    if settings.calibration is None:
        return PRIOR
    calibration = Calibration.load(Path(settings.calibration))
    calibration.check(**identity(vllm_config))
    return calibration.cost
