"""Sessions with the real engine and the bundled model: calls, pauses, resumes, aborts."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from caesura.intercept.calls.events import CallFinished, Event, TextDelta, TurnEnded
from caesura.runtime.errors import ContextOverflow, RequestAborted, UsageError
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.request import LiveRequest, RequestOptions
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.tools.calculator.tool import calculator

pytestmark = pytest.mark.engine

GREEDY = Sampling(temperature=0, max_tokens=200)
SPEC = SessionSpec([calculator.spec()], GREEDY)
Settled = Callable[[], Any]
Open = Callable[..., VllmSession]


@pytest.fixture
async def open_session(engine: VllmEngine, settled: Settled) -> AsyncIterator[Open]:
    """Open sessions that are closed at the end of the test, whatever state they are in."""
    opened: list[VllmSession] = []

    def open_one(spec: SessionSpec = SPEC) -> VllmSession:
        opened.append(engine.open(spec))
        return opened[-1]

    yield open_one
    for session in opened:
        await session.close()


def ask(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def answers(calls: Sequence[CallFinished], *contents: str) -> list[Message]:
    return [
        {"role": "tool", "tool_call_id": call.call_id, "name": call.name, "content": content}
        for call, content in zip(calls, contents, strict=True)
    ]


async def read(session: VllmSession, messages: Sequence[Message]) -> list[Event]:
    return [event async for event in session.turn(messages)]


def calls_of(events: Sequence[Event]) -> list[CallFinished]:
    return [event for event in events if isinstance(event, CallFinished)]


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def end_of(events: Sequence[Event]) -> TurnEnded:
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


async def test_a_paused_session_takes_a_forecast_of_its_pause(
    engine: VllmEngine, open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies: list[dict[str, Any]] = []
    command = engine.command

    async def remember(message: Any, rank: int | None = None) -> dict[str, Any]:
        replies.append(await command(message, rank))
        return replies[-1]

    monkeypatch.setattr(engine, "command", remember)
    session = open_session()
    await session.expect_pause(5.0)  # not yet paused: nothing is sent
    calls = calls_of(await read(session, ask("What is 48*17?")))
    await session.expect_pause(5.0)
    events = await read(session, answers(calls, "816"))
    await session.expect_pause(5.0)
    assert replies == [{"taken": True}]
    assert "816" in text_of(events)


async def test_a_turn_of_calls(engine: VllmEngine, open_session: Open) -> None:
    session = open_session()
    events = await read(session, ask("What is 48 * 17?"))
    assert end_of(events).reason == "call"
    state = await engine.state()
    assert state["paused_held"] == 1
    assert state["blocks_paused"] > 0
    (call,) = calls_of(events)
    assert json.loads(call.arguments) == {"expression": "48*17"} or "48" in call.arguments
    held = len(session.tokens)
    events = await read(session, answers([call], "816"))
    assert "816" in text_of(events)
    resume = end_of(events).resume
    assert resume is not None
    assert resume.handling == "preserve"
    assert resume.cached_tokens == resume.context_tokens == held - 1
    assert end_of(events).reason == "stop"


async def abort_by_a_pause(engine: VllmEngine) -> None:
    """As vLLM's routes `/pause`, whose default is `abort`, and `/resume`."""
    await engine.llm.pause_generation()
    await engine.llm.resume_generation()


async def abort_all(engine: VllmEngine) -> None:
    """As vLLM's route `/abort_requests` without ids."""
    await engine.llm.abort([*engine.llm.output_processor.request_states], internal=True)


ABORTS = pytest.mark.parametrize("abort", [abort_by_a_pause, abort_all])


@ABORTS
@pytest.mark.parametrize(
    "question", ["What is 48 * 17?", "Write a sentence about 12 boxes of 7 eggs."]
)
async def test_an_abort_spares_a_session_that_waits(
    engine: VllmEngine, open_session: Open, abort: Any, question: str
) -> None:
    undisturbed, session = open_session(), open_session()
    said: list[list[Event]] = []
    for one in (undisturbed, session):
        calls = calls_of(await read(one, ask(question)))
        if one is session:
            await abort(engine)
            assert (await engine.state())["paused_held"] == 0
        said.append(await read(one, answers(calls, "816")))
    assert session.tokens == undisturbed.tokens
    assert text_of(said[0]) == text_of(said[1]) != ""
    assert end_of(said[1]).resume is None, "it is a new request"
    if abort is abort_by_a_pause:
        assert end_of(said[1]).cached_tokens == 0, "KV from before a pause is not used"


@ABORTS
async def test_an_abort_ends_a_turn_that_decodes(
    engine: VllmEngine, open_session: Open, abort: Any
) -> None:
    session = open_session(SessionSpec(sampling=Sampling(temperature=0, min_tokens=200)))
    with pytest.raises(RequestAborted, match="the engine's operator"):
        async for _ in session.turn(ask("Hello")):
            await abort(engine)
    await engine.check_health()


async def test_a_call_in_mid_sentence(engine: VllmEngine, open_session: Open) -> None:
    session = open_session()
    events = await read(session, ask("Write a sentence about 12 boxes of 7 eggs."))
    (call,) = calls_of(events)
    assert call.inline
    before = text_of(events)
    assert "[" not in before
    events = await read(session, answers([call], "84"))
    sentence = before + text_of(events)
    assert "84" in sentence
    assert "  " not in sentence
    raw = engine.tokenizer.decode(session.tokens)
    assert ") -> 84]" in raw


async def test_what_was_said_is_what_the_model_says_to_the_same_tokens(
    engine: VllmEngine, open_session: Open
) -> None:
    """Through the whole client: the tokens after a pause are those of one plain request."""
    session = open_session()
    events = await read(session, ask("What is 391 + 46?"))
    events = await read(session, answers(calls_of(events), "437"))
    ended = end_of(events)
    context = session.tokens[: -ended.completion_tokens]
    said = session.tokens[-ended.completion_tokens :]
    params = engine.sampling.params(GREEDY, len(said), None)
    request = LiveRequest(
        engine.llm, "from-scratch", context, params, RequestOptions(resumable=False)
    )
    again = [t async for output in request.turn() for t in output.outputs[0].token_ids]
    assert again == said


async def test_a_conversation_grows_by_appending(engine: VllmEngine, open_session: Open) -> None:
    session = open_session()
    events = await read(session, ask("What is 6 * 7?"))
    events = await read(session, answers(calls_of(events), "42"))
    before = list(session.tokens)
    events = await read(session, ask("Thank you!"))
    assert session.tokens[: len(before)] == before
    assert end_of(events).cached_tokens >= len(before) // 32 * 32 - 32
    whole = engine.rendering.renderer.prompt(session._conversation.history, SPEC.tools)
    assert engine.tokenizer.decode(session.tokens).startswith(engine.tokenizer.decode(whole))


async def test_a_failed_tool_is_told_to_the_model(open_session: Open) -> None:
    session = open_session()
    events = await read(session, ask("What is 7 / 0?"))
    events = await read(session, answers(calls_of(events), "error: division by zero"))
    assert "zero" in text_of(events).lower()


async def test_closing_a_paused_session_frees_it(
    engine: VllmEngine, open_session: Open, settled: Settled
) -> None:
    session = open_session()
    await read(session, ask("What is 48 * 17?"))
    assert (await engine.state())["paused_held"] == 1
    await session.close()
    await settled()
    with pytest.raises(UsageError, match="closed"):
        await read(session, ask("Hello"))


async def test_leaving_in_mid_turn_frees_it(open_session: Open, settled: Settled) -> None:
    session = open_session()
    async with aclosing(session.turn(ask("Hello, who are you?"))) as events:
        await anext(events)
    await settled()


async def test_cancelling_in_mid_turn_frees_it(open_session: Open, settled: Settled) -> None:
    sessions = [open_session() for _ in range(8)]
    tasks = [asyncio.create_task(read(each, ask("What can you do?"))) for each in sessions]
    await asyncio.sleep(0.03)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await settled()


async def test_stop_texts_end_a_turn_and_are_not_shown(open_session: Open) -> None:
    whole = text_of(await read(open_session(), ask("Hello, who are you?")))
    stop = whole.split()[2]
    sampling = Sampling(temperature=0, stop=(stop,))
    for pausing in (True, False):
        session = open_session(SessionSpec(SPEC.tools, sampling, pausing=pausing))
        events = await read(session, ask("Hello, who are you?"))
        assert end_of(events).reason == "stop"
        assert text_of(events) == whole[: whole.index(stop)]


async def test_token_limits(open_session: Open) -> None:
    session = open_session(SessionSpec(SPEC.tools, Sampling(temperature=0, max_tokens=3)))
    ended = end_of(await read(session, ask("Hello, who are you?")))
    assert (ended.reason, ended.completion_tokens) == ("length", 3)
    with pytest.raises(ContextOverflow, match="2048"):
        await read(open_session(), ask("hello " * 3000))


async def test_bad_sampling_is_the_users_mistake(open_session: Open) -> None:
    session = open_session(SessionSpec(SPEC.tools, Sampling(min_tokens=9, max_tokens=3)))
    with pytest.raises(UsageError, match="min_tokens"):
        await read(session, ask("Hello"))


async def test_without_pausing_a_turn_ends_with_its_calls(
    open_session: Open, settled: Settled
) -> None:
    session = open_session(SessionSpec(SPEC.tools, GREEDY, pausing=False))
    events = await read(session, ask("What is 48 * 17?"))
    assert end_of(events).reason == "call"
    assert len(calls_of(events)) == 1
    await settled()
    events = await read(session, answers(calls_of(events), "816"))
    assert "816" in text_of(events)


async def test_more_sessions_than_slots(engine: VllmEngine, open_session: Open) -> None:
    """All of them paused at once, more than `max_num_seqs`, and everybody still gets on."""
    count = engine.llm.vllm_config.scheduler_config.max_num_seqs + 4
    sessions = [open_session() for _ in range(count)]
    turns = await asyncio.gather(
        *(read(s, ask(f"What is {i + 10} * 3?")) for i, s in enumerate(sessions))
    )
    state = await engine.state()
    assert state["paused_held"] + state["paused_dropped"] == count
    assert end_of(await read(open_session(), ask("Hello, who are you?"))).reason == "stop"
    said = await asyncio.gather(
        *(
            read(session, answers(calls_of(turn), str((i + 10) * 3)))
            for i, (session, turn) in enumerate(zip(sessions, turns, strict=True))
        )
    )
    right = sum(str((i + 10) * 3) in text_of(events) for i, events in enumerate(said))
    assert right >= count * 0.9


async def test_a_session_that_leaves_its_call_to_another_is_followed(
    engine: VllmEngine, open_session: Open
) -> None:
    """What it computed while it was paused is kept for the request that brings the result."""
    first, asked = open_session(), ask("What is 17 * 48?")
    calls = calls_of(await read(first, asked))
    context, before = len(first.tokens), (await engine.state())["retained"]
    await first.close(follow_up=True)
    assert (await engine.state())["retained"] == before + 1
    turn = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": one.call_id, "function": {"name": one.name, "arguments": one.arguments}}
            for one in calls
        ],
    }
    second = open_session()
    end = end_of(await read(second, [*asked, turn, *answers(calls, *["816"] * len(calls))]))
    assert end.reason == "stop" and 0 < end.cached_tokens <= context
    assert (await engine.state())["retained"] == before
