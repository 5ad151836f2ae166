"""Measurement of an engine: its steps, then its link, then the fit of both models."""

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
"""Seconds for steps and for the link."""


async def measure(engine: VllmEngine, quick: bool, progress: Progress) -> Calibration:
    """Return a calibration measured on an idle engine, and restore the engine's state.

    Of several data-parallel engines the first is measured, while the others are idle. The scheduler
    keeps its previous cost model; `adopt` installs the new one. Raises `UsageError` for an engine
    that cannot be measured, and `EngineFailed`.
    """
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
    """Install the calibration in the schedulers of a running engine."""
    await engine.command_all({"command": "calibrate", "cost": calibration.cost.to_wire()})
    engine.calibration = calibration


def _calibration(
    engine: VllmEngine, facts: dict[str, Any], steps: list[Step], copies: list[Copy]
) -> Calibration:
    """Return the calibration fitted to the measurements; raise `ValueError` for too few.

    The calibration has the link's rates beside a forward pass, which apply when serving.
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
    """Switch the scheduler to measuring within the context, and yield its facts."""
    llm = engine.llm
    facts = await engine.command("facts")
    before = await engine.command("samples")
    await engine.command({"command": "measure", "on": True})
    # vLLM's metrics must count only clients' requests.
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
    """Switch measuring off, once the scheduler knows that all requests have ended."""
    for _ in range(200):
        try:
            await engine.command({"command": "measure", "on": False})
            return
        except UsageError:
            await asyncio.sleep(0.02)
    raise EngineFailed("the measurement's requests did not end; restart the engine")
