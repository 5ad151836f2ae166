"""Follow-ups with the real engine: the prefix cache is hit up to the last token of the answer."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from caesura.intercept.calls.events import CallFinished, Event, TextDelta, TurnEnded
from caesura.runtime.launch import CPU_BLOCK_SIZE
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.rendering.splice import Splicer
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.tools.calculator.tool import calculator
from tests.engine.templates import over

pytestmark = pytest.mark.engine

GREEDY = Sampling(temperature=0, max_tokens=100)
LONG = Sampling(temperature=2, seed=7, max_tokens=100)
"""The model is too hot to find an end."""
TOOLS = SessionSpec([calculator.spec()], GREEDY, pausing=False)
NO_TOOLS = SessionSpec((), GREEDY, pausing=False)
THANKS = {"role": "user", "content": "Thank you! And who are you, and what can you do for me?"}


async def read(session: VllmSession, messages: Sequence[Message]) -> list[Event]:
    return [event async for event in session.turn(messages)]


def end_of(events: Sequence[Event]) -> TurnEnded:
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


def answer_of(events: Sequence[Event]) -> Message:
    """Return the answer as a client keeps it: calls have ids of the server's."""
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    calls = [
        {
            "id": uuid.uuid4().hex[:9],
            "type": "function",
            "function": {"name": event.name, "arguments": event.arguments},
        }
        for event in events
        if isinstance(event, CallFinished)
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def results(answer: Message, content: str) -> list[Message]:
    return [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "name": call["function"]["name"],
            "content": content,
        }
        for call in answer.get("tool_calls") or ()
    ]


async def asked(
    engine: VllmEngine, spec: SessionSpec, text: str, sampling: Sampling = GREEDY
) -> tuple[list[Message], list[int], VllmSession]:
    """Return a history that ends with a remembered answer, its tokens, and the live session."""
    session = engine.open(spec)
    question: Message = {"role": "user", "content": text}
    answer = answer_of([event async for event in session.turn([question], sampling)])
    await session.remember([answer])
    return [question, answer], list(session.tokens), session


def full_blocks(tokens: int) -> int:
    """Return how many of the tokens stand in full blocks of computed KV."""
    return (tokens - 1) // CPU_BLOCK_SIZE * CPU_BLOCK_SIZE


async def test_results_of_a_client_continue_from_the_answers_tokens(
    engine: VllmEngine, settled: Any
) -> None:
    """The follow-up says what a session says that was never closed, from the same tokens."""
    history, tokens, live = await asked(engine, TOOLS, "What is 48 * 17? Please be exact.")
    tools = results(history[-1], "816")
    assert tools
    after = engine.open(TOOLS)
    ended = end_of(await read(after, [*history, *tools]))
    assert ended.follow_up is not None
    assert (ended.follow_up.outcome, ended.follow_up.spliced_tokens) == ("spliced", len(tokens))
    assert after.tokens[: len(tokens)] == tokens
    # Another test may have sent the whole conversation before.
    assert ended.cached_tokens >= full_blocks(len(tokens))
    await read(live, tools)
    assert after.tokens == live.tokens
    await live.close()
    await after.close()


async def test_a_template_that_drops_thinking_costs_no_recomputation(
    engine: VllmEngine, settled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSeek-R1's template opens the thinking in the prompt, and drops it from the history."""
    engine = over("deepseek_r1_distill", engine)
    history, tokens, live = await asked(engine, NO_TOOLS, "Hello! Who are you?", LONG)
    assert len(history[1]["content"]) > CPU_BLOCK_SIZE
    spliced = engine.open(NO_TOOLS)
    ended = end_of(await read(spliced, [*history, THANKS]))
    assert ended.follow_up is not None and ended.follow_up.outcome == "spliced"
    assert ended.cached_tokens == full_blocks(len(tokens))
    await read(live, [THANKS])
    assert spliced.tokens == live.tokens

    rendering = engine.rendering
    off = Splicer(rendering.renderer, rendering.threads, engine.context_tokens, None)
    monkeypatch.setattr(engine, "rendering", replace(rendering, splicer=off))
    rendered = engine.open(NO_TOOLS)
    whole = end_of(await read(rendered, [*history, THANKS]))
    assert whole.follow_up is not None and whole.follow_up.why == "off"
    assert whole.cached_tokens < ended.cached_tokens
    for session in (live, spliced, rendered):
        await session.close()


async def test_a_changed_answer_is_rendered(engine: VllmEngine, settled: Any) -> None:
    history, tokens, live = await asked(engine, NO_TOOLS, "Hello, who are you?")
    changed = {**history[1], "content": f"{history[1]['content']} "}
    after = engine.open(NO_TOOLS)
    ended = end_of(await read(after, [history[0], changed, THANKS]))
    assert ended.follow_up is not None and ended.follow_up.outcome == "rendered"
    assert after.tokens[: len(tokens)] != tokens
    await live.close()
    await after.close()


async def test_an_answer_cut_at_a_stop_text_is_not_continued(
    engine: VllmEngine, settled: Any
) -> None:
    """Its tokens hold the stop text, which the client never saw."""
    stopping = Sampling(temperature=0, max_tokens=100, stop=("e",))
    history, _, live = await asked(engine, NO_TOOLS, "Hello, who are you?", stopping)
    after = engine.open(NO_TOOLS)
    ended = end_of(await read(after, [*history, THANKS]))
    assert ended.follow_up is not None and ended.follow_up.outcome == "rendered"
    await live.close()
    await after.close()
