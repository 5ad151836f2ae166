"""An engine whose process is killed starts again, and its sessions go on, token for token."""

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import httpx
import pytest

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Event,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.launch import BUNDLED_MODEL, start_engine
from caesura.scheduler.errors import EngineFailed
from caesura.scheduler.messages import CallRule, Message, Sampling, SessionSpec, TextFormat
from caesura.scheduler.session_log import LoggedTurn, MemoryLog, SessionLog
from caesura.scheduler.vllm.client.api_server import RenewedApp
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools.calculator.tool import calculator
from tests.engine.asked import ASKED, FORCED, HELLO, PERSON, TOOLS
from tests.engine.exactness import passed
from tests.engine.known import Known

from .killing import kill

pytestmark = [pytest.mark.engine, pytest.mark.slow]

STEP_TOKENS = 96
SMALL = ["--kv-cache-memory-bytes", str(64 << 20), "--max-num-seqs", "9"]
ARGS = [*SMALL, "--max-num-batched-tokens", str(STEP_TOKENS)]
GREEDY = Sampling(temperature=0.0, max_tokens=60)
SUM: list[Message] = [{"role": "user", "content": "What is 48 * 17?"}]
EGGS: list[Message] = [{"role": "user", "content": "Write a sentence about 12 boxes of 7 eggs."}]
LETTERS = "Zażółć gęślą jaźń 🙂 日本語のテキスト 🎉🎉 ещё немного текста"
STOPPED = "one two three four five six seven eight nine ten eleven twelve"


def written(text: str, **given: Any) -> Sampling:
    """Settings with which the model writes this text."""
    return replace(GREEDY, max_tokens=200, text=TextFormat("choice", (text,)), **given)


CASES: dict[str, tuple[SessionSpec, list[Message], Sampling]] = {
    "text": (SessionSpec(), HELLO, GREEDY),
    "call": (SessionSpec([calculator.spec()]), SUM, GREEDY),
    "inline": (SessionSpec([calculator.spec()]), EGGS, GREEDY),
    "forced": (SessionSpec(TOOLS), HELLO, replace(GREEDY, calls=CallRule(required=True))),
    "client's": (SessionSpec([calculator.spec()], pausing=False), SUM, GREEDY),
    "schema": (SessionSpec(), HELLO, replace(GREEDY, text=PERSON)),
    "thinking": (SessionSpec(), ASKED, FORCED),
    "letters": (SessionSpec(), HELLO, written(LETTERS)),
    "stop": (SessionSpec(), HELLO, written(STOPPED, stop=("seven eight",))),
    "limit": (SessionSpec(), HELLO, replace(GREEDY, max_tokens=16)),
    "least": (SessionSpec(), SUM, replace(GREEDY, min_tokens=30, max_tokens=40)),
    "penalty": (SessionSpec(), HELLO, replace(GREEDY, frequency_penalty=1.5)),
}


@dataclass
class Mortal:
    """An engine of its own, whose process tests kill, and what its sessions say undisturbed."""

    engine: VllmEngine
    undisturbed: dict[str, list[Event]]


@pytest.fixture(scope="module")
async def mortal() -> AsyncIterator[Mortal]:
    others = set(multiprocessing.active_children())
    engine = await start_engine(vllm_args=ARGS)
    assert isinstance(engine, VllmEngine)
    engine.language.thinking = ("<think>",)  # as for a model whose template shows it
    yield Mortal(engine, {name: await conversation(engine, name) for name in CASES})
    await engine.close()
    assert set(multiprocessing.active_children()) <= others


async def conversation(
    engine: VllmEngine,
    name: str,
    seen: Callable[[Event], Any] | None = None,
    paused: Callable[[], Awaitable[Any]] | None = None,
    log: SessionLog | None = None,
) -> list[Event]:
    """Return the events of a session whose calls are all answered; see `plain`."""
    spec, messages, sampling = CASES[name]
    session = engine.open(spec, log)
    events: list[Event] = []
    for _ in range(4):
        turn: list[Event] = []
        async for event in session.turn(messages, sampling):
            turn.append(event)
            if seen is not None:
                seen(event)
        events += turn
        assert isinstance(turn[-1], TurnEnded)
        if turn[-1].reason != "call" or not spec.pausing:
            break
        if paused is not None:
            await paused()
        messages = [
            {"role": "tool", "tool_call_id": each.call_id, "name": each.name, "content": "84"}
            for each in turn
            if isinstance(each, CallFinished)
        ]
        sampling = GREEDY
    await session.close()
    return events if log is not None else plain(events)


def plain(events: Sequence[Event]) -> list[Event]:
    """Return the events with their calls numbered, and with whole texts."""
    names: dict[str, str] = {}
    numbers = count()
    made: list[Event] = []
    for each in events:
        event: Any = each
        if isinstance(event, CallStarted):
            names[event.call_id] = f"call-{next(numbers)}"
        if hasattr(event, "call_id"):
            event = replace(event, call_id=names[event.call_id])
        made.append(event)
    return merged(made)


def merged(events: Sequence[Event]) -> list[Event]:
    """Return the events as they are in whatever pieces the text came, and what was cached."""
    made: list[Any] = []
    for each in events:
        event: Any = each
        if isinstance(event, TurnEnded):
            event = replace(event, cached_tokens=0, resume=None)
        texts = isinstance(event, TextDelta | ReasoningDelta | ArgumentsDelta)
        if texts and made and type(made[-1]) is type(event):
            made[-1] = replace(made[-1], text=made[-1].text + event.text)
        else:
            made.append(event)
    return made


async def test_a_killed_engine_starts_again(mortal: Mortal) -> None:
    engine = mortal.engine
    facts = await engine.command("facts")
    app = RenewedApp(engine)
    await app.renew()
    served = await completed(app, engine.model)
    kill(engine)
    with pytest.raises(EngineFailed):  # nobody supervises it
        await conversation(engine, "text")
    with pytest.raises(EngineFailed):
        await engine.check_health()
    await engine.restart()
    await engine.check_health()
    assert await conversation(engine, "text") == mortal.undisturbed["text"]
    assert await engine.command("facts") == facts
    await app.renew()
    assert await completed(app, engine.model) == served
    await app.aclose()


async def completed(app: Any, model: str) -> str:
    """Ask vLLM's own application."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        body = {"model": model, "prompt": "Hello", "max_tokens": 5, "temperature": 0}
        answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


@pytest.mark.parametrize("tokens", [1, 6, 11, 19])
async def test_sessions_go_on_where_they_stood(mortal: Mortal, tokens: int) -> None:
    """All kinds of turns run when the engine is killed; some of them still wait in its queue."""
    engine = mortal.engine
    seen = dict.fromkeys(CASES, 0)
    dead = asyncio.Event()

    def note(name: str, event: Event) -> None:
        seen[name] += 1
        if name == "letters" and seen[name] == tokens and not dead.is_set():
            kill(engine)
            dead.set()

    async def one(name: str) -> list[Event]:
        return await conversation(engine, name, lambda event: note(name, event))

    async def restart() -> None:
        await dead.wait()
        at_death.update(seen)
        unfinished.update(name for name, task in running.items() if not task.done())
        await engine.restart()

    at_death: dict[str, int] = {}
    unfinished: set[str] = set()
    running: dict[str, asyncio.Task[list[Event]]] = {}
    with engine.revival.supervising():
        async with asyncio.TaskGroup() as group:
            group.create_task(restart())
            running |= {name: group.create_task(one(name)) for name in CASES}
        found = {name: task.result() for name, task in running.items()}
    for name in CASES:
        assert found[name] == mortal.undisturbed[name], (name, at_death[name])
    assert len(unfinished) > 4, unfinished


async def test_what_is_known_of_tokens_spans_a_death(mortal: Mortal) -> None:
    engine, log, dead = mortal.engine, Known(), asyncio.Event()
    seen = count(1)

    def note(_: Event) -> None:
        if next(seen) == 6:
            kill(engine)
            dead.set()

    async def restart() -> None:
        await dead.wait()
        await engine.restart()

    with engine.revival.supervising():
        async with asyncio.TaskGroup() as group:
            group.create_task(restart())
            group.create_task(conversation(engine, "text", note, log=log))
    assert dead.is_set()
    (context,), (found,) = log.contexts(), log.logprobs
    assert found == pytest.approx(passed(BUNDLED_MODEL, context)[-len(found) :], abs=1e-4)
    assert log.versions == [["default"] * len(found)]


async def test_paused_sessions_resume_in_a_new_engine(mortal: Mortal) -> None:
    engine = mortal.engine
    names = [
        name
        for name, said in mortal.undisturbed.items()
        if sum(isinstance(each, TurnEnded) for each in said) > 1
    ]
    assert len(names) > 1
    all_paused = asyncio.Barrier(len(names) + 1)
    alive = asyncio.Event()

    async def paused() -> None:
        if not alive.is_set():
            await all_paused.wait()
            await alive.wait()

    async with asyncio.TaskGroup() as group:
        running = {
            name: group.create_task(conversation(engine, name, paused=paused)) for name in names
        }
        await all_paused.wait()
        kill(engine)
        await engine.restart()
        alive.set()
    for name in names:
        assert running[name].result() == mortal.undisturbed[name]


@pytest.mark.parametrize("name", CASES)
async def test_a_session_goes_on_where_its_log_ends(mortal: Mortal, name: str) -> None:
    """The same events with the same ids, and the same log in the end, wherever it was cut."""
    engine = mortal.engine
    whole = MemoryLog("run")
    undisturbed = await conversation(engine, name, log=whole)
    assert plain(undisturbed) == mortal.undisturbed[name]
    length = sum(len(each.sampled) for each in whole.turns)
    for kept in {0, 1, 5, length // 3, length // 2, length - 2, length - 1, length}:
        log = MemoryLog("run", cut(whole.turns, kept))
        events = await conversation(engine, name, log=log)
        assert merged(events) == merged(undisturbed), kept
        assert [each.sampled for each in log.turns] == [each.sampled for each in whole.turns]
        assert [each.appended for each in log.turns] == [each.appended for each in whole.turns]


def cut(turns: Sequence[LoggedTurn], tokens: int) -> list[LoggedTurn]:
    """What is left of a log whose end was lost behind some tokens, together with the outcome."""
    kept = []
    for each in turns:
        whole = tokens > len(each.sampled)
        sampled = list(each.sampled[:tokens])
        kept.append(replace(each, sampled=sampled, outcome=each.outcome if whole else None))
        tokens -= len(sampled)
        if not whole:
            break
    return kept


async def test_a_seed_survives_a_prompt_that_is_split_over_steps(mortal: Mortal) -> None:
    """Generators of CPUs cannot be set back, which ended vLLM's engine."""
    engine = mortal.engine
    sampling = Sampling(temperature=1.0, seed=7, max_tokens=24)
    asked: list[Message] = [{"role": "user", "content": f"Say a word. {'One more. ' * 90}"}]

    async def said() -> tuple[str, TurnEnded]:
        session = engine.open(SessionSpec())
        events = [event async for event in session.turn(asked, sampling)]
        await session.close()
        assert isinstance(events[-1], TurnEnded)
        return "".join(e.text for e in events if isinstance(e, TextDelta)), events[-1]

    first, ended = await said()
    assert ended.prompt_tokens > 2 * STEP_TOKENS
    again, cached = await said()
    assert cached.cached_tokens > ended.cached_tokens, "this prompt is split in other places"
    assert first == again
    await engine.check_health()
