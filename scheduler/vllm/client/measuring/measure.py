"""Measuring an engine: its steps, then its link, then the models that fit them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import date
from typing import Any

from caesura.scheduler.calibration import Calibration, Step, fit
from caesura.scheduler.errors import EngineFailed, UsageError
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.measuring.link import Copy, Link, rates_of
from caesura.scheduler.vllm.client.measuring.steps import Limits, Progress, measure_steps
from caesura.scheduler.vllm.client.measuring.traffic import Traffic
from caesura.scheduler.vllm.compose import identity

QUICK_SECONDS = (3.0, 1.2)
FULL_SECONDS = (28.0, 12.0)
"""For steps and for the link."""


async def measure(engine: VllmEngine, quick: bool, progress: Progress) -> Calibration:
    """Measure an engine that has nothing else to do, and leave it as it was.

    The scheduler's cost model is then what it was at the start; `adopt` hands it the new one.
    Raises `UsageError` for an engine that cannot be measured, and `EngineFailed`.
    """
    config = engine.llm.vllm_config
    if config.parallel_config.data_parallel_size > 1:
        raise UsageError(
            "data-parallel engines are not measured together: run `caesura calibrate` without"
            " --data-parallel-size; the file is good for each of them"
        )
    seconds = QUICK_SECONDS if quick else FULL_SECONDS
    share = seconds[0] / sum(seconds)
    traffic = Traffic(engine)
    async with _measured(engine) as facts:
        capacity = facts["blocks"] * facts["block_size"]
        limits = Limits(
            facts["most_step_tokens"], facts["most_running"], facts["most_context"], capacity
        )
        steps = await measure_steps(
            traffic, limits, seconds[0], quick, lambda done, what: progress(done * share, what)
        )
        copies: list[Copy] = []
        if facts["host_blocks"]:
            link = Link(
                traffic, facts["block_size"], facts["host_blocks"], facts["most_context"], capacity
            )
            await link.measure(
                seconds[1], quick, lambda done, what: progress(share + done * (1 - share), what)
            )
            copies = link.copies
    progress(1.0, "done")
    try:
        return _calibration(engine, facts, steps, copies)
    except ValueError as error:
        raise UsageError(f"this engine cannot be measured: {error}") from error


async def adopt(engine: VllmEngine, calibration: Calibration) -> None:
    """Have the scheduler of a running engine go by what was measured."""
    await engine.command({"command": "calibrate", "cost": calibration.cost.to_wire()})
    engine.calibration = calibration


def _calibration(
    engine: VllmEngine, facts: dict[str, Any], steps: list[Step], copies: list[Copy]
) -> Calibration:
    """Fit what was measured; raises `ValueError` for too little.

    The link's rates beside a forward pass are those that serving has.
    """
    cost, step_error = fit(steps)
    out, into = rates_of(copies, "out"), rates_of(copies, "in")
    return Calibration(
        **identity(engine.llm.vllm_config),
        block_size=facts["block_size"],
        bytes_per_token=facts["bytes_per_token"],
        date=date.today().isoformat(),
        cost=replace(cost, out_rate=out.beside, in_rate=into.beside),
        step_error=step_error,
        out_error=out.error,
        in_error=into.error,
        steps=tuple(steps),
        copies=(*out.copies, *into.copies),
        out_alone=out.alone,
        in_alone=into.alone,
    )


@asynccontextmanager
async def _measured(engine: VllmEngine) -> AsyncIterator[dict[str, Any]]:
    """Set the scheduler up to be measured, and back; yield its facts."""
    llm = engine.llm
    facts = await engine.command("facts")
    before = await engine.command("samples")
    await engine.command({"command": "measure", "on": True})
    # vLLM's metrics are to count requests of clients only.
    metrics = getattr(llm, "_logger_ref", [None])
    counting, metrics[0] = metrics[0], None
    try:
        yield facts
    finally:
        await _end(engine)
        await llm.reset_prefix_cache(reset_connector=True)
        await engine.command({"command": "calibrate", "cost": before["cost"]})
        metrics[0] = counting


async def _end(engine: VllmEngine) -> None:
    """End the trial, as soon as the scheduler has heard that all requests are over."""
    for _ in range(200):
        try:
            await engine.command({"command": "measure", "on": False})
            return
        except UsageError:
            await asyncio.sleep(0.02)
    raise EngineFailed("requests of the measurement did not end")
