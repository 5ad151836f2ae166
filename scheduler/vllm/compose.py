"""Builds what a scheduler is equipped with, from vLLM's configuration."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import vllm
from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.v1.core.sched.scheduler import Scheduler

from caesura.intercept.calls.formats import CallFormat
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.kv.costs import PRIOR, CostModel, CostTracker
from caesura.scheduler.admission import make_admission
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.predict import make_predictor
from caesura.scheduler.predict.forecast import Predictor
from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.pause import PausePredictor
from caesura.scheduler.rank import make_ranking
from caesura.scheduler.settings import Settings
from caesura.scheduler.vllm.admission import StepAdmission
from caesura.scheduler.vllm.call_detection import Watcher
from caesura.scheduler.vllm.control import Commands, ControlPort, Engine, with_link
from caesura.scheduler.vllm.engine_state import EngineState, engine_state_of
from caesura.scheduler.vllm.holding import Holding
from caesura.scheduler.vllm.keeper import Keeper
from caesura.scheduler.vllm.ledger import Record, RecordWriter
from caesura.scheduler.vllm.line import Clock, Line
from caesura.scheduler.vllm.lives import Lives
from caesura.scheduler.vllm.memory import PauseMemory
from caesura.scheduler.vllm.pauses import Pauses
from caesura.scheduler.vllm.reclaim import Reclaim
from caesura.scheduler.vllm.recompute import Recomputation
from caesura.scheduler.vllm.recorder import Recorder
from caesura.scheduler.vllm.retention import Retainer
from caesura.scheduler.vllm.step_costs import StepCosts
from caesura.scheduler.vllm.stopping import CallStops
from caesura.scheduler.vllm.swap.connector import CaesuraConnector
from caesura.scheduler.vllm.swap.planner import SwapPlanner

SEED = 0
"""Of the samples that an admission policy draws."""

SETTINGS_KEY = "caesura"
"""In vLLM's `additional_config`: what `Settings` are read from."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the process around a scheduler provides; a simulation has its own.

    `clock` never goes backwards, `wall` tells the time of day, both in seconds. Records go into
    `outbox` rather than out with the statistics. `cost` is this engine's own, `vocabulary` and
    `formats` stand in for the tokenizer's, and `predictor` makes one from what is known of pauses.
    """

    clock: Clock = time.monotonic
    wall: Callable[[], float] = time.time
    outbox: list[Record] | None = None
    cost: CostModel | None = None
    vocabulary: Vocabulary | None = None
    formats: tuple[CallFormat, ...] | None = None
    predictor: Callable[[PausePredictor], Predictor] | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The collaborators of one scheduler, each the only one of its kind."""

    port: EngineState
    clock: Clock
    costs: CostTracker
    recorder: Recorder
    watcher: Watcher
    stops: CallStops
    lives: Lives
    keeper: Keeper
    recomputation: Recomputation
    step_costs: StepCosts
    line: Line
    reclaim: Reclaim
    admission: StepAdmission
    pauses: Pauses
    retainer: Retainer
    control: ControlPort
    engine: Engine
    commands: Commands


def compose(scheduler: Scheduler, given: Dependencies) -> Parts:
    """Build the parts of a scheduler that vLLM has just built.

    Without a calibration its cost model is a guess, which corrects itself. Raises `ValueError` for
    bad settings, and for a calibration that another engine was measured with.
    """
    config = scheduler.vllm_config
    settings = settings_of(config)
    port, clock = engine_state_of(scheduler), given.clock
    planner = _planner_of(port)
    calibration = calibration_of(config)
    measured = given.cost or (calibration.cost if calibration is not None else None)
    costs = CostTracker(with_link(measured or PRIOR, planner))
    holdings: dict[str, Holding] = {}
    recorder = _recorder(port, settings, given, holdings, planner)
    lives = _lives(config, settings, given, recorder)
    keeper = Keeper(port, settings, costs, lives, recorder, holdings, planner)
    watcher = Watcher(config, given.vocabulary, given.formats)
    stops = CallStops(watcher)
    recomputation = Recomputation(
        port, costs, keeper.sight, holdings, settings.chunk, measured is not None
    )
    step_costs = StepCosts(port, costs, recomputation, recorder)
    ranking = make_ranking(settings.ranking)
    line = Line(port, lives, keeper, costs, clock, ranking, settings.backfill)
    reclaim = Reclaim(port, keeper, clock)
    pauses = Pauses(port, keeper, lives, recomputation, watcher, clock)
    engine = Engine(
        port, keeper, pauses, stops, lives, recorder, recomputation, step_costs, costs, clock
    )
    workers = config.parallel_config.world_size
    commands = Commands(engine, scheduler.kv_cache_config, workers)
    return Parts(
        port=port,
        clock=clock,
        costs=costs,
        recorder=recorder,
        watcher=watcher,
        stops=stops,
        lives=lives,
        keeper=keeper,
        recomputation=recomputation,
        step_costs=step_costs,
        line=line,
        reclaim=reclaim,
        admission=StepAdmission(port, keeper, line, reclaim, recorder),
        pauses=pauses,
        retainer=Retainer(port, keeper, lives, watcher, clock, settings.retention),
        control=ControlPort(commands),
        engine=engine,
        commands=commands,
    )


def _planner_of(port: EngineState) -> SwapPlanner | None:
    """Return the planner of our connector, if the engine has it and host memory."""
    if not isinstance(port.connector, CaesuraConnector):
        return None
    # What cannot be loaded is recomputed: there is always a way back.
    port.recompute_failed_loads()
    return port.connector.planner


def _recorder(
    port: EngineState,
    settings: Settings,
    given: Dependencies,
    holdings: Mapping[str, Holding],
    planner: SwapPlanner | None,
) -> Recorder:
    outbox = given.outbox
    if outbox is None and settings.records and port.reports_stats:
        connector = port.connector
        outbox = connector.outbox if isinstance(connector, CaesuraConnector) else None
    if outbox is None:
        return Recorder()
    return RecordWriter(port, outbox, holdings, planner, given.wall)


def _lives(
    config: VllmConfig, settings: Settings, given: Dependencies, recorder: Recorder
) -> Lives:
    memory = PauseMemory(settings.pauses)
    if given.predictor is not None:
        predictor = given.predictor(memory.predictor)
    else:
        predictor = make_predictor(settings.prediction, memory.predictor)
    if isinstance(predictor, History):
        memory.keep(predictor, _model_name(config))
    admission = make_admission(settings.admission, Random(SEED))
    return Lives(predictor, memory, admission, recorder)


def identity(vllm_config: VllmConfig) -> dict[str, str]:
    """Name what a calibration holds for: model, dtype, device and vLLM's version."""
    workers = vllm_config.parallel_config.world_size
    return {
        "model": _model_name(vllm_config),
        "dtype": str(vllm_config.model_config.dtype).removeprefix("torch."),
        "device": f"{workers} x {current_platform.get_device_name()}",
        "vllm_version": vllm.__version__,
    }


def _model_name(vllm_config: VllmConfig) -> str:
    model = Path(vllm_config.model_config.model)
    return model.name if model.is_dir() else str(vllm_config.model_config.model)


def settings_of(vllm_config: VllmConfig) -> Settings:
    """Read the settings; raises `ValueError` naming what is wrong."""
    given: Any = vllm_config.additional_config
    given = given.get(SETTINGS_KEY, {}) if isinstance(given, Mapping) else {}
    if not isinstance(given, Mapping):
        raise ValueError(f"additional_config.{SETTINGS_KEY} must be an object")
    return Settings.from_mapping(given)


def calibration_of(vllm_config: VllmConfig) -> Calibration | None:
    """Return what the settings say was measured of this engine, if they say so.

    Raises `CalibrationError` if it is broken, or another engine's.
    """
    path = settings_of(vllm_config).calibration
    if path is None:
        return None
    calibration = Calibration.load(Path(path))
    calibration.check(**identity(vllm_config))
    return calibration
