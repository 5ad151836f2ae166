"""A campaign against one server: clients and faults at once, then the judgement at rest."""

import asyncio
import math
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.campaign.conduct import tell
from benchmarks.campaign.report import Defect, Outcome

from .clients import ANSWER_SECONDS, Clients, decline
from .faults import WEIGHTS, Faults
from .odd_tools import ODD
from .rest import Usage, by_the_minute, growths, left_behind, runs_in_journal, watch
from .server import Server, serving, until

TOOL_FAULTS = tuple(f"tool {does}" for does in ODD.values())
KINDS = (*WEIGHTS, *TOOL_FAULTS)
"""All kinds of faults. Those of tools come with the clients, which call such tools."""
LONGER_SECONDS = 300.0
"""How much longer than its budget a campaign may last for the kinds that have not happened yet."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign does: at most so many sessions and seconds, and faults of these kinds.

    A slow machine gets `LONGER_SECONDS` more where a kind has not happened within the budget.
    """

    seed: int
    sessions: int
    budget: float
    every: float
    """Seconds between faults, on average."""
    kinds: Sequence[str] = KINDS
    clients: int = 8
    calm: float = 0.0
    """The last part of the budget, from 0 to 1, in which no server and no engine is killed."""

    @property
    def again(self) -> str:
        """The command that runs it again."""
        kinds = "" if tuple(self.kinds) == KINDS else f" --faults {','.join(self.kinds)!r}"
        asked = f"--seed {self.seed} --budget {self.budget:g} --every {self.every:g}"
        asked += f" --clients {self.clients} --calm {self.calm:g}"
        return f"python -m benchmarks.campaign real {asked}{kinds}"


@dataclass
class Campaign:
    """One server, its clients, and what they saw."""

    server: Server
    plan: Plan
    outcome: Outcome = field(default_factory=lambda: Outcome(runs=1))

    def defect(self, kind: str, seen: str) -> None:
        """Note a defect."""
        self.outcome.defects.append(Defect(kind, seen, self.plan.again))
        tell(self.outcome.defects[-1:])

    async def go(self) -> None:
        """Ask alone first, then all at once under faults until the time is over; then judge."""
        ends_at = time.monotonic() + self.plan.budget
        rng = random.Random(self.plan.seed)
        clients = Clients(self.server, random.Random(rng.random()), self.outcome, self.defect)
        machine = [kind for kind in self.plan.kinds if kind in WEIGHTS]
        faults = Faults(self.server, random.Random(rng.random()), machine)
        if self.plan.calm:
            faults.calm_from = ends_at - self.plan.calm * self.plan.budget
        usage: list[Usage] = []

        def goes_on(sessions: int) -> bool:
            late = time.monotonic() - ends_at
            owed = 0 <= late < LONGER_SECONDS and self._owed(faults)
            return sessions < self.plan.sessions and (late < 0 or owed)

        limits = httpx.Limits(max_connections=200, max_keepalive_connections=20)
        try:
            async with httpx.AsyncClient(timeout=ANSWER_SECONDS, limits=limits) as http:
                await clients.undisturbed(http)
                before = self.server.holds()
                # An error of any of these ends all others and the campaign.
                async with asyncio.TaskGroup() as around:
                    ending = asyncio.Event()
                    around.create_task(watch(self.server, usage, ending))
                    around.create_task(self._tell(ending))
                    around.create_task(decline(self.server, http, ending))
                    enough = asyncio.Event()
                    striking = around.create_task(_strike(faults, self.plan.every, enough))
                    async with asyncio.TaskGroup() as asking:
                        for _ in range(self.plan.clients):
                            asking.create_task(clients.go(http, goes_on))
                        await until(lambda: not goes_on(self.outcome.sessions), math.inf)
                        # The last sessions end without further faults.
                        enough.set()
                    await striking
                    ending.set()
        finally:
            self._count(faults)
        self._judge_growth(usage)
        self._judge_notes(clients.notes)
        left = await left_behind(self.server, before)
        for one in left:
            self.defect("leaked", one)
        self.outcome.figures["left at rest"] = len(left)
        for name, *counts in zip(
            ("descriptors", "processes"), before, self.server.holds(), strict=True
        ):
            told = ", ".join(map(str, counts))
            self.outcome.figures[f"{name} before the faults and at the end"] = told

    async def _tell(self, ending: asyncio.Event) -> None:
        """Say every minute how far it is."""
        began = time.monotonic()
        while not ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), 60)
            seconds, found = time.monotonic() - began, len(self.outcome.defects)
            text = f"real: {seconds:.0f} s, {self.outcome.sessions} sessions, {found} defects"
            print(text, file=sys.stderr, flush=True)

    def _happened(self, faults: Faults) -> Counter[str]:
        odd = self.server.odd
        names = odd.read_text().split() if odd.exists() else []
        return faults.happened + Counter(f"tool {ODD[name]}" for name in names)

    def _owed(self, faults: Faults) -> bool:
        """Return whether a kind has not happened yet that may happen still."""
        striking = self.plan.every > 0
        may = [kind for kind in self.plan.kinds if kind in TOOL_FAULTS or striking]
        happened = self._happened(faults)
        return any(not happened[kind] and faults.may_strike(kind) for kind in may)

    def _count(self, faults: Faults) -> None:
        self.outcome.faults.update(self._happened(faults))
        self.outcome.never = [kind for kind in self.plan.kinds if not self.outcome.faults[kind]]

    def _judge_growth(self, usage: Sequence[Usage]) -> None:
        for growth in growths(usage):
            self.outcome.figures[growth.process] = str(growth)
            if not growth.flat:
                self.defect("leaked", f"{growth.process}: {growth}")
        self.outcome.figures["usage"] = by_the_minute(usage)

    def _judge_notes(self, told: dict[str, int]) -> None:
        """Judge the calls that must not be made twice by the lines that they have written."""
        lines = len(self.server.notes.read_text().splitlines())
        figure = f"{lines} lines; {told['written']} told as written, {told['unsure']} as unsure"
        self.outcome.figures["notes"] = figure
        if lines > told["asked"]:
            self.defect("run twice", figure)
        if lines < told["written"]:
            self.defect("lost", figure)

    def stopped(self) -> None:
        """Stop the server and judge what is left of it."""
        if left := self.server.stop():
            self.defect("leaked", f"processes are left after SIGTERM: {left}")
        runs, kept = runs_in_journal(self.server.journal)
        self.outcome.figures["answers kept for clients with a key"] = kept
        for run in runs:
            self.defect("leaked", f"a run is left in the journal: {run}")
        lines = self.server.log.read_text(errors="replace").splitlines()
        errors = Counter(line for line in lines if line.startswith(("AssertionError", "KeyError")))
        self.outcome.figures.update(errors)


async def _strike(faults: Faults, every: float, ending: asyncio.Event) -> None:
    if every > 0:
        await faults.go(every, ending)


def run(plan: Plan) -> tuple[Outcome, bool]:
    """Conduct the campaign; returns the outcome, and whether Ctrl-C ended it."""
    began = time.monotonic()
    outcome, broken_off = asyncio.run(_run(plan))
    outcome.seconds = time.monotonic() - began
    return outcome, broken_off


async def _run(plan: Plan) -> tuple[Outcome, bool]:
    with tempfile.TemporaryDirectory(prefix="caesura-campaign-") as folder:
        async with serving(Path(folder)) as server:
            campaign = Campaign(server, plan)
            try:
                await campaign.go()
            except asyncio.CancelledError:  # Ctrl-C
                campaign.outcome.figures["judged at rest"] = "no, the campaign was broken off"
                return campaign.outcome, True
            except Exception:
                campaign.defect("broken", f"{server.end_of_log()}\n{traceback.format_exc()}")
            else:
                await asyncio.to_thread(campaign.stopped)
    return campaign.outcome, False
