"""One run of the fuzz campaign: some hundred inputs of one part, and what is wrong with them."""

import asyncio
import gc
import json
import logging
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random

from benchmarks.campaign.report import Defect, Outcome

from . import bodies, engine
from .files import Files
from .journals import Journals

BODIES, PLANS, TEXTS, MESSAGES, FILES, JOURNALS = 2000, 4000, 400, 400, 300, 200
"""Inputs of each part in one run."""
PARTS = ("bodies", "plans", "texts", "messages", "files", "journals", "bodies", "plans", "texts")
"""The parts in the order of runs; the quick ones come more often."""

Check = Callable[[], Iterator[str]]


def run(seed: int, index: int) -> Outcome:
    """Try the inputs of one run; the same two numbers make the same inputs."""
    logging.disable(logging.NOTSET)  # for what a server logs says whether it failed
    began, rng, part = time.perf_counter(), Random(f"{seed}/{index}"), PARTS[index % len(PARTS)]
    again = f"python -m benchmarks.campaign fuzz --seed {seed} --only {index}"
    made = Outcome(runs=1)
    _freeze()
    MAKERS[part](rng, made, again)
    made.faults[part] += made.sessions
    made.seconds = time.perf_counter() - began
    return made


@cache
def _freeze() -> None:
    """Leave what was imported to itself: walking vLLM and torch cost most of a run."""
    gc.collect()
    gc.freeze()


def _checked(check: Check, times: int, made: Outcome, again: str) -> None:
    """Make a check many times; what it yields, or raises, is a defect."""
    for _ in range(times):
        made.sessions += 1
        try:
            wrong = list(check())
        except Exception:
            wrong = [traceback.format_exc()]
        made.ends["wrong" if wrong else "as it should"] += 1
        made.defects.extend(Defect("broken", one, again) for one in wrong)
        if len(made.defects) > 5:
            return


def _plans(rng: Random, made: Outcome, again: str) -> None:
    _checked(lambda: engine.plan(rng), PLANS, made, again)


def _texts(rng: Random, made: Outcome, again: str) -> None:
    _checked(lambda: engine.call_text(rng), TEXTS, made, again)


def _messages(rng: Random, made: Outcome, again: str) -> None:
    told = engine.Told(rng)
    _checked(
        lambda: told.control() if rng.random() < 0.7 else told.watched(), MESSAGES, made, again
    )
    _checked(told.rests, 1, made, again)


def _files(rng: Random, made: Outcome, again: str) -> None:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="caesura-fuzz-", dir=memory) as folder, _silent():
        files = Files(Path(folder), rng)
        checks = (files.history, files.calibrated, files.described, files.history)
        _checked(lambda: rng.choice(checks)(), FILES, made, again)
        _checked(files.engine, 3, made, again)


def _journals(rng: Random, made: Outcome, again: str) -> None:
    _checked(Journals(rng).damaged, JOURNALS, made, again)


@contextmanager
def _silent() -> Iterator[None]:
    """Files that are refused are told in the log, as they should."""
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _bodies(rng: Random, made: Outcome, again: str) -> None:
    asyncio.run(_ask(rng, made, again))


async def _ask(rng: Random, made: Outcome, again: str) -> None:
    async with bodies.served(rng) as served:
        for _ in range(BODIES):
            await _ask_once(served, bodies.body(rng), made, again)
        seen = asyncio.all_tasks() - {asyncio.current_task()}
    left = {task for task in seen if not task.done()}
    open_sessions = served.engine.open_sessions
    if left or served.app.completions or open_sessions:
        state = f"{len(left)} tasks, {served.app.completions} completions, {open_sessions} sessions"
        made.defects.append(Defect("leaked", f"{state} are left: {left!r:.2000}", again))


async def _ask_once(served: bodies.Served, request: bodies.Body, made: Outcome, again: str) -> None:
    made.sessions += 1
    served.tracebacks.seen.clear()
    try:
        status, answer = await served.ask(request)
    except TimeoutError:
        wrong, kind, status = f"no answer in {bodies.HANG_SECONDS} s", "wedged", 0
    except Exception:
        wrong, kind, status = traceback.format_exc(), "broken", 0
    else:
        found = bodies.fault_of(status, answer, served.tracebacks.seen)
        if found is None:
            made.ends[f"status {status}"] += 1
            return
        wrong, kind = found, "broken"
    made.ends[f"wrong, status {status}"] += 1
    data = request.data[:1500].decode(errors="replace")
    made.defects.append(Defect(kind, f"{request.path} {json.dumps(data)}\n{wrong}", again))


MAKERS: dict[str, Callable[[Random, Outcome, str], None]] = {
    "bodies": _bodies,
    "plans": _plans,
    "texts": _texts,
    "messages": _messages,
    "files": _files,
    "journals": _journals,
}
