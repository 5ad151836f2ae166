"""Sessions with pictures on the real engine, through vLLM's own renderer."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from caesura.intercept.calls.events import CallFinished, Event, TurnEnded
from caesura.runtime.errors import UsageError
from caesura.runtime.launch import start_engine
from caesura.runtime.trajectories.media import media_of
from caesura.runtime.trajectories.recorded import RecordedLog, RecordedSession
from caesura.runtime.trajectories.recorder import TrajectoryRecorder
from caesura.scheduler.messages import CallRule, Message, Sampling, SessionSpec
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.rendering.media import Media
from caesura.scheduler.vllm.client.session import VllmSession

from .killing import kill
from .seeing import PLACEHOLDERS, shown, vision_model

pytestmark = pytest.mark.engine

LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look closer.",
        "parameters": {
            "type": "object",
            "properties": {"part": {"enum": ["sky", "sea"]}},
            "required": ["part"],
            "additionalProperties": False,
        },
    },
}
GREEDY = Sampling(temperature=0, max_tokens=24)
CALLING = Sampling(temperature=0, max_tokens=100, calls=CallRule(required=True, single=True))
SPEC = SessionSpec([LOOK], GREEDY)


@pytest.fixture(scope="module")
async def seer() -> AsyncIterator[VllmEngine]:
    arguments = ["--max-model-len", "1024", "--kv-cache-memory-bytes", "67108864"]
    limit = ["--limit-mm-per-prompt", '{"image": 2}', "--dtype", "float32"]
    settings = {"calibration": None, "pauses": None}
    started = await start_engine(
        vision_model(), formats=["hermes"], vllm_args=[*arguments, *limit], settings=settings
    )
    assert isinstance(started, VllmEngine)
    yield started
    await started.close()


async def turn(session: Any, messages: Sequence[Message], sampling: Sampling) -> list[Event]:
    return [event async for event in session.turn(messages, sampling)]


async def uninterrupted(
    engine: VllmEngine, media: Media, tokens: Sequence[int], count: int
) -> list[int]:
    """What the model says after tokens that it gets all at once."""
    assert await engine.llm.reset_prefix_cache()
    params = engine.sampling.params(GREEDY, count, None)
    said: list[int] = []
    prompt: Any = media.prompt(tokens, None)
    async for output in engine.llm.generate(prompt, params, f"whole-{len(tokens)}"):
        said += output.outputs[0].token_ids
    return said


async def test_turns_and_a_pause_after_a_picture(seer: VllmEngine) -> None:
    """The call pauses a request with a picture, and a later turn sends it again."""
    asked = [shown("What is on it?", 1)]
    _, media = await seer.rendering.media.prompt(asked, [LOOK], {}, False)
    session = seer.open(SPEC)
    try:
        events = await turn(session, asked, CALLING)
        (call,) = [event for event in events if isinstance(event, CallFinished)]
        result = {"role": "tool", "tool_call_id": call.call_id, "name": "look", "content": "blue"}
        for messages in ([result], [{"role": "user", "content": "And now?"}]):
            events = await turn(session, messages, GREEDY)
            ended = events[-1]
            assert isinstance(ended, TurnEnded)
            assert (ended.resume is not None) == (messages == [result])
            before = len(session.tokens) - ended.completion_tokens
            said = session.tokens[before:]
            whole = session.tokens[:before]
            assert said == await uninterrupted(seer, media, whole, len(said))
        place = seer.tokenizer.convert_tokens_to_ids("<image>")
        assert session.tokens.count(place) == PLACEHOLDERS
    finally:
        await session.close()


async def test_a_picture_in_a_result_and_in_a_later_turn(seer: VllmEngine) -> None:
    """All messages are then rendered again, with both pictures at their places."""
    session = seer.open(SPEC)
    try:
        events = await turn(session, [{"role": "user", "content": "Look."}], CALLING)
        (call,) = [event for event in events if isinstance(event, CallFinished)]
        result = {**shown("Here:", 1), "role": "tool", "tool_call_id": call.call_id}
        await turn(session, [{**result, "name": "look"}], GREEDY)
        await turn(session, [shown("And this?", 2)], GREEDY)
        place = seer.tokenizer.convert_tokens_to_ids("<image>")
        assert session.tokens.count(place) == 2 * PLACEHOLDERS
    finally:
        await session.close()


async def test_what_the_model_takes(seer: VllmEngine) -> None:
    assert seer.media_rules.limits == {"image": 2}
    plain = await seer.count_prompt(SPEC, [{"role": "user", "content": "Look."}])
    assert await seer.count_prompt(SPEC, [shown("Look.", 1)]) >= plain + PLACEHOLDERS


async def test_more_pictures_than_the_engine_was_started_for(seer: VllmEngine) -> None:
    session = seer.open(SPEC)
    with pytest.raises(UsageError, match="At most 2 image"):
        await turn(session, [shown("Look.", 1, 2, 3)], GREEDY)


@pytest.mark.slow
async def test_a_session_with_a_picture_survives_its_engine(seer: VllmEngine) -> None:
    """The picture is sent again with the tokens, in mid-turn and behind a pause."""

    async def talk(deaths: bool) -> list[int]:
        session = seer.open(SPEC)
        events: list[Event] = []
        async for event in session.turn([shown("What is on it?", 2)], CALLING):
            events.append(event)
            if deaths and len(events) == 3:
                kill(seer)
                await seer.restart()
        (call,) = [event for event in events if isinstance(event, CallFinished)]
        if deaths:
            kill(seer)
            await seer.restart()
        result = {"role": "tool", "tool_call_id": call.call_id, "name": "look", "content": "blue"}
        await turn(session, [result], GREEDY)
        await session.close()
        return session.tokens

    undisturbed = await talk(deaths=False)
    assert await talk(deaths=True) == undisturbed


async def test_pictures_are_references_in_a_trajectory(seer: VllmEngine) -> None:
    """The tokens are the engine's, behind pictures too, of which it logs none."""
    recorder = TrajectoryRecorder("s")
    log = RecordedLog(recorder, "key", seer.model)
    inner = seer.open(SPEC, log)
    assert isinstance(inner, VllmSession)
    session = RecordedSession(inner, log)
    asked = shown("What is on it?", 1)
    first = await turn(session, [asked], CALLING)
    (call,) = [each for each in first if isinstance(each, CallFinished)]
    result = {"role": "tool", "tool_call_id": call.call_id, "content": "A boat."}
    second = await turn(session, [result], GREEDY)
    third = await turn(session, [shown("And on this?", 2)], GREEDY)
    told = [each for each in (first[-1], second[-1], third[-1]) if isinstance(each, TurnEnded)]
    whole = tuple(inner.tokens)
    await session.close()
    other = RecordedLog(recorder, "other", seer.model)
    again = RecordedSession(seer.open(SPEC, other), other)
    await turn(again, [shown("What is on it?", 3)], GREEDY)
    await again.close()

    trajectory = recorder.trajectory()
    # With the second picture all is rendered again, and the template writes what was said anew.
    before, after, last = trajectory.branches
    assert [each.source for each in before.segments] == ["prompt", "sampled", "tool", "sampled"]
    assert [len(each.tokens) for each in before.segments] == [
        count for each in told[:2] for count in (each.prompt_tokens, each.completion_tokens)
    ]
    assert trajectory.rollout(after.id).ids == whole
    assert len(after.segments[-1].tokens) == told[2].completion_tokens
    parts = trajectory.segments(after.id)
    held = [(each.digest, each.message) for part in parts for each in part.media]
    digests = [each.digest for each in media_of([shown("", 1, 2, 3)]) or ()]
    assert held == [(digests[0], 0), (digests[1], 4)]
    pad = max(set(whole), key=whole.count)
    assert whole.count(pad) == 2 * PLACEHOLDERS
    # Another picture is another branch, from its first token.
    assert (last.parent, last.segments[0].media[0].digest) == (None, digests[2])
    assert before.segments[3].resume is not None  # the call paused the request
