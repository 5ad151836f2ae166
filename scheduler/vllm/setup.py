"""What a scheduler is equipped with, from vLLM's configuration."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import vllm
from vllm.platforms import current_platform

from caesura.intercept.cost import PRIOR, CostModel
from caesura.scheduler.admission import make_admission
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.predict import make_predictor
from caesura.scheduler.predict.history import History
from caesura.scheduler.rank import make_ranking
from caesura.scheduler.settings import Settings
from caesura.scheduler.vllm.keeper import Keeper
from caesura.scheduler.vllm.line import Line
from caesura.scheduler.vllm.lives import Lives
from caesura.scheduler.vllm.memory import PauseMemory
from caesura.scheduler.vllm.swap.connector import CaesuraConnector
from caesura.scheduler.vllm.swap.planner import SwapPlanner

SEED = 0
"""Of the samples that an admission policy draws."""

SETTINGS_KEY = "caesura"
"""In vLLM's `additional_config`: what `Settings` are read from."""


def make_keeper(scheduler: Any) -> Keeper:
    """Make the keeper of a scheduler's paused KV.

    Without a calibration its cost model is a guess, which corrects itself. Raises `ValueError` for
    bad settings, and for a calibration that another engine was measured with.
    """
    settings = settings_of(scheduler.vllm_config)
    calibration = calibration_of(scheduler.vllm_config)
    cost = PRIOR if calibration is None else calibration.cost
    connector = scheduler.connector
    planner, outbox = None, None
    if isinstance(connector, CaesuraConnector):
        planner = connector.planner
        if settings.records and scheduler.log_stats:
            outbox = connector.outbox
        # What cannot be loaded is recomputed: there is always a way back.
        scheduler.recompute_kv_load_failures = True
    memory = PauseMemory(settings.pauses)
    predictor = make_predictor(settings.prediction, memory.predictor)
    if isinstance(predictor, History):
        memory.keep(predictor, _model_name(scheduler.vllm_config))
    return Keeper(
        scheduler,
        settings,
        with_link(cost, planner),
        memory,
        predictor,
        planner,
        outbox,
    )


def make_line(scheduler: Any) -> Line:
    """Make the waiting line of a scheduler that has its keeper."""
    settings = scheduler._keeper.settings
    admission = make_admission(settings.admission, Random(SEED))
    return Line(
        scheduler,
        make_ranking(settings.ranking),
        admission,
        Lives(scheduler._keeper.predictor, admission),
        settings.backfill,
    )


def identity(vllm_config: Any) -> dict[str, str]:
    """Name what a calibration holds for: model, dtype, device and vLLM's version."""
    workers = vllm_config.parallel_config.world_size
    return {
        "model": _model_name(vllm_config),
        "dtype": str(vllm_config.model_config.dtype).removeprefix("torch."),
        "device": f"{workers} x {current_platform.get_device_name()}",
        "vllm_version": vllm.__version__,
    }


def _model_name(vllm_config: Any) -> str:
    model = Path(vllm_config.model_config.model)
    return model.name if model.is_dir() else str(vllm_config.model_config.model)


def with_link(cost: CostModel, planner: SwapPlanner | None) -> CostModel:
    """Return the cost model with a guess for the link, where there is one that nobody measured.

    No rate would be no swap, and so no measurement, for good.
    """
    if planner is None or (cost.out_rate and cost.in_rate):
        return cost
    return replace(cost, out_rate=PRIOR.out_rate, in_rate=PRIOR.in_rate)


def settings_of(vllm_config: Any) -> Settings:
    """Read the settings; raises `ValueError` naming what is wrong."""
    given = vllm_config.additional_config
    given = given.get(SETTINGS_KEY, {}) if isinstance(given, Mapping) else {}
    if not isinstance(given, Mapping):
        raise ValueError(f"additional_config.{SETTINGS_KEY} must be an object")
    return Settings.from_mapping(given)


def calibration_of(vllm_config: Any) -> Calibration | None:
    """Return what the settings say was measured of this engine, if they say so.

    Raises `CalibrationError` if it is broken, or another engine's.
    """
    path = settings_of(vllm_config).calibration
    if path is None:
        return None
    calibration = Calibration.load(Path(path))
    calibration.check(**identity(vllm_config))
    return calibration
