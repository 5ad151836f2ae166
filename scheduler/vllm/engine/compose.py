"""Builds the collaborators of a scheduler from vLLM's configuration."""

import logging
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
from caesura.intercept.kv.step_budget import StepTokens
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.policy.names import make_admission, make_predictor, make_ranking
from caesura.scheduler.policy.shares import Accounts
from caesura.scheduler.policy.slo import Slo
from caesura.scheduler.predict.forecast import Predictor
from caesura.scheduler.predict.guarded import Guarded
from caesura.scheduler.predict.hazard import Hazard
from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.prompt import PromptLengths
from caesura.scheduler.predict.tables import PausePredictor
from caesura.scheduler.prompt_lengths.predictor import Description
from caesura.scheduler.prompt_lengths.process import LengthProcess
from caesura.scheduler.settings import Settings
from caesura.scheduler.vllm.engine.admission import StepAdmission
from caesura.scheduler.vllm.engine.calls import CallDetector, CallStops
from caesura.scheduler.vllm.engine.connector import CaesuraConnector
from caesura.scheduler.vllm.engine.control import Commands, ControlPort, EngineControl, with_link
from caesura.scheduler.vllm.engine.export.writer import Entry, RecordWriter
from caesura.scheduler.vllm.engine.follow_ups import FollowUps
from caesura.scheduler.vllm.engine.kv.manager import PausedKVManager
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedBlocks, PausedCounts, PausedKVs
from caesura.scheduler.vllm.engine.kv.reclaim import Reclaimer
from caesura.scheduler.vllm.engine.pauses import Pauses
from caesura.scheduler.vllm.engine.port import EngineState, engine_state_of
from caesura.scheduler.vllm.engine.sessions.history_file import HistoryFile, file_of_engine
from caesura.scheduler.vllm.engine.sessions.recorder import Recorder
from caesura.scheduler.vllm.engine.sessions.served import Clock, ServedRequests
from caesura.scheduler.vllm.engine.sessions.sessions import Contents, Sessions, TokenContents
from caesura.scheduler.vllm.engine.steps import Chunking, StepCosts
from caesura.scheduler.vllm.engine.swap.host import HostStore
from caesura.scheduler.vllm.engine.swap.planner import SwapPlanner
from caesura.scheduler.vllm.engine.waiting_queue import QueueOrder, Shares, WaitingQueue
from caesura.scheduler.vllm.orphan import end_with_server

logger = logging.getLogger(__name__)

SEED = 0
"""Seed of the random numbers of an admission policy."""

SETTINGS_KEY = "caesura"
"""Key of the `Settings` in vLLM's `additional_config`."""


EXACT_SPECULATION = ("ngram",)
"""Methods of speculative decoding with which tests show that requests resume exactly."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The dependencies that the process provides; a simulation has its own.

    `clock` never goes backwards, and `wall` is the time of day, both in seconds. Records go into
    `outbox`, if given, instead of the statistics. `cost` is a model measured on this engine.
    `vocabulary` and `formats` replace those of the tokenizer. `predictor` creates a predictor from
    the learned pauses. `recorder` is used where no records are written. `contents`
    replaces the reading of calls and results from tokens.
    """

    clock: Clock = time.monotonic
    wall: Callable[[], float] = time.time
    outbox: list[Entry] | None = None
    cost: CostModel | None = None
    vocabulary: Vocabulary | None = None
    formats: tuple[CallFormat, ...] | None = None
    predictor: Callable[[PausePredictor], Predictor] | None = None
    contents: Contents | None = None
    recorder: Recorder | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The collaborators of one scheduler, one of each kind."""

    port: EngineState
    clock: Clock
    costs: CostTracker
    recorder: Recorder
    detector: CallDetector
    stops: CallStops
    served: ServedRequests
    sessions: Sessions
    paused_kvs: PausedKVs
    manager: PausedKVManager
    chunking: Chunking
    step_costs: StepCosts
    queue: WaitingQueue
    shares: Shares | None
    reclaim: Reclaimer
    admission: StepAdmission
    pauses: Pauses
    follow_ups: FollowUps
    control: ControlPort
    engine: EngineControl
    commands: Commands


def compose(scheduler: Scheduler, given: Dependencies) -> Parts:
    """Return the collaborators of a scheduler that vLLM has just created.

    Without a calibration the cost model is a guess, which measurements correct. Raises
    `ValueError` for invalid settings, for a calibration of another engine, and for an unsupported
    method of speculative decoding.
    """
    config = scheduler.vllm_config
    check_speculation(config)
    end_with_server()
    settings = settings_of(config)
    port, clock = engine_state_of(scheduler), given.clock
    planner = _planner_of(port, settings)
    measured = given.cost or _calibrated(config)
    costs = CostTracker(*with_link(measured or PRIOR, planner))
    counts = PausedCounts()
    recorder = _recorder(port, settings, given, counts, planner)
    detector = CallDetector(config, given.vocabulary, given.formats, settings.formats)
    served = ServedRequests()
    sessions = _sessions(config, settings, given, served, recorder, detector)
    paused_kvs = PausedKVs(PausedBlocks(port, _store_of(planner)), recorder, counts)
    manager = PausedKVManager(port, settings, costs, sessions, recorder, paused_kvs, planner)
    stops = CallStops(detector, served)
    step_tokens = StepTokens(settings.chunk, settings.chunk_saturations, settings.long_step_decodes)
    chunking = Chunking(port, costs, paused_kvs, served, step_tokens, measured is not None)
    step_costs = StepCosts(port, costs, chunking, recorder, planner)
    order = _order(settings, port, sessions)
    queue = WaitingQueue(port, sessions, paused_kvs, manager.views, clock, order)
    reclaim = Reclaimer(port, manager, paused_kvs, clock)
    pauses = Pauses(port, manager, paused_kvs, served, sessions, clock)
    engine = EngineControl(
        port, manager, pauses, stops, served, sessions, recorder, chunking, step_costs, costs, clock
    )
    workers = config.parallel_config.world_size
    commands = Commands(engine, scheduler.kv_cache_config, workers)
    return Parts(
        port=port,
        clock=clock,
        costs=costs,
        recorder=recorder,
        detector=detector,
        stops=stops,
        served=served,
        sessions=sessions,
        paused_kvs=paused_kvs,
        manager=manager,
        chunking=chunking,
        step_costs=step_costs,
        queue=queue,
        shares=order.shares,
        reclaim=reclaim,
        admission=StepAdmission(port, manager, paused_kvs, planner, queue, reclaim, recorder),
        pauses=pauses,
        follow_ups=FollowUps(
            port, manager, paused_kvs, served, sessions, detector, clock, settings.retention
        ),
        control=ControlPort(commands),
        engine=engine,
        commands=commands,
    )


def _calibrated(config: VllmConfig) -> CostModel | None:
    """Return the cost model of the calibration that the settings name, or None."""
    calibration = calibration_of(config)
    return calibration.cost if calibration is not None else None


def _store_of(planner: SwapPlanner | None) -> HostStore | None:
    return planner.store if planner is not None else None


def _order(settings: Settings, port: EngineState, sessions: Sessions) -> QueueOrder:
    """Return what orders the queue."""
    slo = Slo.parse(settings.slo) if settings.slo is not None else None
    fair = settings.fair == "tenant"
    shares = Shares(port, sessions, Accounts(settings.weights)) if fair else None
    return QueueOrder(make_ranking(settings.ranking), settings.step_rules, slo, shares)


def _planner_of(port: EngineState, settings: Settings) -> SwapPlanner | None:
    """Return the planner of Caesura's connector, or None without it or without host memory."""
    if not isinstance(port.connector, CaesuraConnector):
        return None
    # KV that cannot be loaded is recomputed, so a failed load never fails its request.
    port.recompute_failed_loads()
    planner = port.connector.planner
    if planner is not None:
        planner.max_failures = settings.max_copy_failures
    return planner


def _recorder(
    port: EngineState,
    settings: Settings,
    given: Dependencies,
    paused: PausedCounts,
    planner: SwapPlanner | None,
) -> Recorder:
    outbox = given.outbox
    if outbox is None and settings.records and port.reports_stats:
        connector = port.connector
        outbox = connector.outbox if isinstance(connector, CaesuraConnector) else None
    if outbox is None:
        return given.recorder or Recorder()
    return RecordWriter(port, outbox, paused, planner, given.wall, given.clock)


def _sessions(
    config: VllmConfig,
    settings: Settings,
    given: Dependencies,
    served: ServedRequests,
    recorder: Recorder,
    detector: CallDetector,
) -> Sessions:
    index = config.parallel_config.data_parallel_index
    history_file = HistoryFile(file_of_engine(settings.pauses, index))
    if given.predictor is not None:
        predictor = given.predictor(history_file.predictor)
    else:
        predictor = make_predictor(settings.prediction, history_file.predictor)
    known = predictor.history if isinstance(predictor, Hazard) else predictor
    if isinstance(predictor, History | Hazard):
        history_file.keep(predictor, _model_name(config))
    admission = make_admission(settings.admission, Random(SEED))
    contents = given.contents or TokenContents(detector.text_of, history_file.salt)
    lengths = _lengths(settings, given, detector)
    if lengths is not None:
        predictor = PromptLengths(predictor, lengths)
    if given.predictor is None and type(predictor) is not History:
        predictor = _guarded(predictor, known, history_file.predictor)
    return Sessions(served, predictor, history_file, admission, recorder, contents, lengths)


def _guarded(predictor: Predictor, known: Predictor, pauses: PausePredictor) -> Guarded:
    """Return the predictor, with the history that is `known`, or a new one, as its successor."""

    def successor() -> Predictor:
        return known if type(known) is History else History(pauses)

    def report(error: Exception) -> None:
        logger.exception(
            "the predictor %s failed and is not used until a restart; history predicts instead",
            predictor.name,
            exc_info=error,
        )

    return Guarded(predictor, successor, report)


def _lengths(
    settings: Settings, given: Dependencies, detector: CallDetector
) -> LengthProcess | None:
    """Return the started process that predicts lengths from prompts, or None without one.

    Raises `ValueError` if its directory holds no predictor, and in a simulation.
    """
    if settings.length_predictor is None:
        return None
    if given.contents is not None:
        raise ValueError(
            f"caesura.length_predictor is {settings.length_predictor!r}, but a simulation has no"
            " prompts: leave the setting out"
        )
    folder = Path(settings.length_predictor)
    Description.read(folder)
    return LengthProcess(folder, detector.text_of)


def identity(vllm_config: VllmConfig) -> dict[str, str]:
    """Return the engine that a calibration fits: model, dtype, device and vLLM's version."""
    parallel = vllm_config.parallel_config
    stages = parallel.pipeline_parallel_size
    pipeline = f" in {stages} stages" if stages > 1 else ""
    return {
        "model": _model_name(vllm_config),
        "dtype": str(vllm_config.model_config.dtype).removeprefix("torch."),
        "device": f"{parallel.world_size} x {current_platform.get_device_name()}{pipeline}",
        "vllm_version": vllm.__version__,
    }


def _model_name(vllm_config: VllmConfig) -> str:
    model = Path(vllm_config.model_config.model)
    return model.name if model.is_dir() else str(vllm_config.model_config.model)


def check_speculation(vllm_config: VllmConfig) -> None:
    """Raise `ValueError` for speculative decoding by a method not in `EXACT_SPECULATION`."""
    speculative = vllm_config.speculative_config
    if speculative is None or speculative.method in EXACT_SPECULATION:
        return
    raise ValueError(
        f"speculative decoding with method {speculative.method!r} is not supported by Caesura's"
        " scheduler: exact resumption after a tool call was not tested with it. Use"
        f" method {EXACT_SPECULATION[0]!r}, or start without a speculative config"
    )


def settings_of(vllm_config: VllmConfig) -> Settings:
    """Return the settings in vLLM's configuration; raise `ValueError` for invalid ones."""
    given: Any = vllm_config.additional_config
    given = given.get(SETTINGS_KEY, {}) if isinstance(given, Mapping) else {}
    if not isinstance(given, Mapping):
        raise ValueError(f"additional_config.{SETTINGS_KEY} must be an object, got {given!r}")
    return Settings.from_mapping(given)


def calibration_of(vllm_config: VllmConfig) -> Calibration | None:
    """Return the calibration that the settings name, or None.

    Raises `CalibrationError` if the file is invalid or belongs to another engine.
    """
    path = settings_of(vllm_config).calibration
    if path is None:
        return None
    calibration = Calibration.load(Path(path))
    calibration.check(**identity(vllm_config))
    return calibration
