"""One run: one system, one load, one round, in an engine of its own."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.handling import SYSTEMS
from benchmarks.handling.drive import Driver
from benchmarks.handling.ledger import new_ledger, read_ledger
from benchmarks.handling.systems import Settings, engine
from benchmarks.handling.workload import Session

Progress = Callable[[int], None]

IDLE = "idle"
"""The name of runs that serve one session after the other."""


@dataclass(frozen=True)
class Plan:
    """What to run; equal plans but for the system see the same sessions at the same moments."""

    system: str
    load: float
    round: int
    sessions: list[Session]
    counted: frozenset[str]
    longest_seconds: float
    seed: int = 0
    alone: bool = False
    """Serve the sessions one after the other, without the tools' time: an idle engine."""

    @property
    def what(self) -> dict[str, Any]:
        """What tells this run from others with the same settings."""
        return {
            "system": IDLE if self.alone else self.system,
            "caesura": SYSTEMS[self.system],
            "load": self.load,
            "round": self.round,
            "seed": self.seed,
        }


async def run(plan: Plan, settings: Settings, directory: Path, progress: Progress) -> dict:
    """Serve the plan's sessions until all that count are done; return everything that was seen.

    After `longest_seconds` the run ends in any case, and says which sessions were not done.
    """
    ledger = new_ledger(directory / "ledger")
    async with engine(plan.system, settings, ledger) as llm:
        driver = Driver(llm, pausing=SYSTEMS[plan.system] is not None)
        await _serve(driver, plan, progress)
        seconds = driver.now()
        counts = read_ledger(ledger)
    return {
        "system": plan.what["system"],
        "load": plan.load,
        "round": plan.round,
        "seconds": seconds,
        "ledger": counts,
        "sessions": [_row(record, plan.counted) for record in driver.records],
    }


async def _serve(driver: Driver, plan: Plan, progress: Progress) -> None:
    if plan.alone:
        await _serve_alone(driver, plan, progress)
    else:
        await _serve_together(driver, plan, progress)


async def _serve_alone(driver: Driver, plan: Plan, progress: Progress) -> None:
    chosen = [session for session in plan.sessions if session.key in plan.counted]
    for done, session in enumerate(chosen):
        segments = tuple(replace(segment, tool_seconds=0.0) for segment in session.segments)
        await driver.run(replace(session, arrival_seconds=driver.now(), segments=segments))
        progress(done + 1)


async def _serve_together(driver: Driver, plan: Plan, progress: Progress) -> None:
    tasks = {asyncio.create_task(driver.run(session)): session.key for session in plan.sessions}
    open_keys = set(plan.counted)
    pending = set(tasks)
    try:
        async with asyncio.timeout(plan.longest_seconds):
            while open_keys:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                    open_keys.discard(tasks[task])
                progress(len(plan.counted) - len(open_keys))
    except TimeoutError:
        pass
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


def _row(record: Any, counted: frozenset[str]) -> dict[str, Any]:
    return {**asdict(record), "counted": record.key in counted}
