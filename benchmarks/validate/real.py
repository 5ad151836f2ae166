"""One real run: an engine is started, measured in place, and serves sessions that call tools."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.handling.drive import Driver
from benchmarks.handling.records import SessionRecord
from benchmarks.handling.systems import BLOCK_SIZE, Settings, engine_args
from benchmarks.handling.workload import Segment, Session
from benchmarks.validate.steps import RecordingScheduler, Row, new_rows, overhead, read_rows
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.vllm.client.engine import VllmEngine

ALONE = 12
"""Requests that are served one by one, to see what a segment spends outside of the engine."""
ALONE_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Setup:
    """The engine of both worlds; `handling` and everything else of Caesura's at its default."""

    kv_tokens: int = 5440
    batched_tokens: int = 512
    sequences: int = 64
    host_gib: float = 2.0
    model: str = "25m"
    handling: str = "caesura"


@dataclass(slots=True)
class RealRun:
    """What a real run gave.

    `calibration` was measured before the load, `rows` are the steps under load, `overhead` the
    seconds that a segment spends outside of the engine when it is alone; `began` is the
    `time.perf_counter` of the run's second 0, `machine_load` the machine's load average before and
    after.
    """

    calibration: Calibration
    host_blocks: int
    overhead: float
    records: list[SessionRecord] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    began: float = 0.0
    seconds: float = 0.0
    machine_load: tuple[float, float] = (0.0, 0.0)


@asynccontextmanager
async def _engine(setup: Setup, steps: Path) -> AsyncIterator[VllmEngine]:
    """Start the engine of `benchmarks.handling`, with every step written down."""
    settings = Settings(
        blocks=setup.kv_tokens // BLOCK_SIZE,
        model=setup.model,
        batched_tokens=setup.batched_tokens,
        sequences=setup.sequences,
        host_gib=setup.host_gib,
    )
    args = engine_args({"handling": setup.handling}, settings, steps) | {
        "scheduler_cls": RecordingScheduler
    }
    llm = await asyncio.to_thread(AsyncLLM.from_engine_args, AsyncEngineArgs(**args))
    engine = VllmEngine(llm, EngineOptions(served_name=setup.model))
    try:
        yield engine
    finally:
        await engine.close()


async def serve(
    setup: Setup, sessions: list[Session], counted: frozenset[str], longest: float, directory: Path
) -> RealRun:
    """Measure a fresh engine, then serve the sessions until all that count have ended.

    After `longest` seconds it ends in any case.
    """
    path = new_rows(directory / "steps")
    async with _engine(setup, path) as engine:
        calibration = await engine.measure(True, lambda done, what: None)
        await engine.adopt(calibration)
        facts = await engine.command("facts")
        spent = await _outside(engine, path)
        load = os.getloadavg()[0]
        run = RealRun(calibration, facts["host_blocks"], spent)
        known = len(read_rows(path))
        driver = Driver(engine.llm, pausing=True)
        await _drive(driver, sessions, counted, longest)
        run.began, run.seconds = driver.began, driver.now()
        run.records = driver.records
        run.rows = read_rows(path)[known:]
        run.machine_load = (load, os.getloadavg()[0])
    return run


async def _outside(engine: VllmEngine, path: Path) -> float:
    """Serve short sessions one by one, and return what a segment spends outside of the engine."""
    known = len(read_rows(path))
    driver = Driver(engine.llm, pausing=True)
    alone: list[tuple[float, float]] = []
    for index in range(ALONE):
        segments = (Segment(ALONE_TOKENS, 4),)
        session = Session(f"alone-{index}", "alone", driver.now(), segments)
        record = await driver.run(session)
        segment = record.segments[0]
        alone.append((driver.began + segment.sent, driver.began + segment.first))
        await asyncio.sleep(0.05)
    return overhead(read_rows(path)[known:], alone)


async def _drive(
    driver: Driver, sessions: list[Session], counted: frozenset[str], longest: float
) -> None:
    tasks = [asyncio.create_task(driver.run(session)) for session in sessions]
    chosen = [task for task, each in zip(tasks, sessions, strict=True) if each.key in counted]
    driver.began = time.perf_counter()
    done, _ = await asyncio.wait(chosen, timeout=longest)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
