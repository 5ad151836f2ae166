"""Putting a run together: work, engines, files, and the conductor of all."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict

from caesura.planning.application.application import Application
from caesura.planning.application.requests import Request
from caesura.planning.plan import Plan
from caesura.planning.run.conductor import Better, Conductor, Crew, Replan
from caesura.planning.run.errors import OutputError
from caesura.planning.run.fleet import Fleet
from caesura.planning.run.host import EngineHost
from caesura.planning.run.journal import Journal, Result
from caesura.planning.run.limits import Limits
from caesura.planning.run.notices import Notice
from caesura.planning.run.sending.client import Client
from caesura.planning.run.sending.dispatch import Dispatcher, Questions
from caesura.planning.run.sending.work import Work


async def carry_out(
    application: Application,
    requests: Iterable[Request],
    plan: Plan,
    host: EngineHost,
    journal: Journal,
    *,
    questions: Questions,
    replan: Replan,
    better: Better | None = None,
    limits: Limits | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> None:
    """Run a plan until every request has a result in the journal.

    The engines are stopped at the end, whatever ends the run. Raises `RunError` if it can't go on,
    as with a full disk or an engine that ends again and again; what was done is kept.
    """
    limits = limits or Limits()
    notices: asyncio.Queue[Notice] = asyncio.Queue()
    work = Work(requests, journal.done)
    outcome = "stopped"
    journal.start(strategy=plan.strategy, devices=plan.devices, plan=asdict(plan))
    async with Client() as client:
        dispatcher = Dispatcher(
            work,
            journal,
            client.ask,
            questions,
            notices.put_nowait,
            max_in_flight=limits.max_in_flight,
            on_result=on_result,
        )
        fleet = Fleet(
            host,
            dispatcher,
            journal,
            notices.put_nowait,
            drain_seconds=limits.drain_seconds,
            watch_seconds=limits.watch_seconds,
        )
        crew = Crew(application, work, dispatcher, fleet, host, journal, notices)
        try:
            await Conductor(crew, plan, replan, better).run()
            outcome = "finished"
        finally:
            await dispatcher.close()
            await fleet.close()
            with suppress(OutputError):
                await journal.event(outcome, done=len(work.done))
