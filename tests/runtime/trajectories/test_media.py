"""Pictures stand in trajectories by reference, and what differs in them is never shared."""

import base64
import random
from collections.abc import AsyncGenerator, Sequence
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.intercept.calls.events import Event, TextDelta, TurnEnded
from caesura.runtime.errors import UsageError
from caesura.runtime.trajectories.files import from_json, to_json
from caesura.runtime.trajectories.media import media_of
from caesura.runtime.trajectories.recorded import RecordedLog, RecordedSession
from caesura.runtime.trajectories.recorder import Told, TrajectoryRecorder
from caesura.runtime.trajectories.trajectory import Medium, Trajectory
from caesura.scheduler.messages import Message, Sampling
from caesura.scheduler.session_log import LoggedTurn, SessionLog, TurnOutcome
from tests.runtime.trajectories.computed import check


def url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def image(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url(data)}}


def shown(*pictures: bytes) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": "See."}, *map(image, pictures)]}


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def test_every_form_of_a_medium_has_the_digest_of_its_bytes() -> None:
    text = base64.b64encode(b"x").decode()
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text}}
    by_url = {"type": "image", "source": {"type": "url", "url": url(b"y")}}
    sound = {"type": "input_audio", "input_audio": {"data": text, "format": "wav"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text"}, by_url]}
    messages = [
        {"role": "user", "content": "Hi."},
        {"role": "user", "content": [block, sound]},
        {"role": "user", "content": [result]},
        shown(b"y", b"x"),
        None,
    ]
    assert media_of(messages) == (
        Medium("image", digest(b"x"), 1, 0),
        Medium("audio", digest(b"x"), 1, 1),
        Medium("image", digest(b"y"), 2, 0),
        Medium("image", digest(b"y"), 3, 1),
        Medium("image", digest(b"x"), 3, 2),
    )
    assert media_of(messages[:1]) == ()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png,abc"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,a"}},
        {"type": "image_url"},
        {"type": "image", "source": "x"},
        {"type": "input_audio", "input_audio": {"format": "wav"}},
    ],
)
def test_bytes_that_are_not_there_have_no_digest(part: Any) -> None:
    assert media_of([{"role": "user", "content": [part]}]) is None


PICTURE = 99
"""The placeholder of every picture."""


class World:
    """Histories of texts and pictures, of which each turn is sent as a whole."""

    def __init__(self) -> None:
        self.recorder = TrajectoryRecorder("s")
        self.sent: set[tuple[Any, ...]] = set()
        """What each turn was sent with, and sampled: pictures for their placeholders."""

    def play(self, history: Sequence[Any], sampled: int) -> list[Any]:
        tokens = [PICTURE if isinstance(each, bytes) else each for each in history]
        pictures = [each for each in history if isinstance(each, bytes)]
        media = [Medium("image", digest(each), at, 0) for at, each in enumerate(pictures)]
        one = self.recorder.beside()
        one.begin(LoggedTurn(tokens, has_media=bool(media)), "user", None, Told(1, 1), media)
        one.sampled([sampled])
        one.end(TurnOutcome("stop"), None)
        self.sent.add((*history, sampled))
        return [*history, sampled]

    def seen(self, trajectory: Trajectory) -> set[tuple[Any, ...]]:
        """Return what each sampled turn saw, read from the trajectory alone."""
        found = set()
        for branch in trajectory.branches:
            saw: list[Any] = []
            for part in trajectory.segments(branch.id):
                held = iter(part.media)
                saw += [next(held).digest if each == PICTURE else each for each in part.tokens]
                assert next(held, None) is None
                if part.source == "sampled" and part.stop_reason is not None:
                    found.add(tuple(saw))
        return found


WORDS = st.sampled_from([1, 2, b"a", b"b"])
TURNS = st.tuples(st.integers(0, 5), st.integers(0, 6), st.lists(WORDS, max_size=3))


@settings(deadline=None, max_examples=200)
@given(st.lists(TURNS, min_size=1, max_size=8))
def test_each_turn_has_the_pictures_that_it_was_sent(
    turns: list[tuple[int, int, list[Any]]],
) -> None:
    """Each turn goes on behind one of those before, or behind a part of it."""
    world, histories = World(), [[1]]
    for which, kept, more in turns:
        before = histories[which % len(histories)]
        histories.append(world.play([*before[: max(kept, 1)], *more], 3))
        histories.append(world.play([*before, *more], 4))
    trajectory = world.recorder.trajectory()
    check(trajectory)
    wanted = {
        tuple(digest(each) if isinstance(each, bytes) else each for each in one)
        for one in world.sent
    }
    assert world.seen(trajectory) == wanted
    assert from_json(to_json(trajectory)) == trajectory
    fork = world.recorder.forked("t").trajectory()
    line = world.recorder.trajectory().segments(fork.branches[-1].id)
    assert fork.segments(fork.branches[-1].id) == line


class SeeingSession:
    """A session of an engine that, as vLLM's, logs nothing behind the first turn with media."""

    def __init__(self, log: SessionLog, has_tokens: bool = True) -> None:
        self._log: SessionLog | None = log
        self._context: list[int] = []
        self._rng = random.Random(5)
        if has_tokens:
            self.tokens: list[int] = []

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        media = media_of(messages)
        new = [len(messages), *[PICTURE] * len(media or ()), 1]
        self._context = [*self._context, *new]
        if self._log is not None:
            self._log.begin(LoggedTurn(new, has_media=bool(media)))
            self._log = None if media else self._log
        sampled = [self._rng.randrange(10, 90) for _ in range(3)]
        yield TextDelta("So.")
        self._context += sampled
        if hasattr(self, "tokens"):
            self.tokens = list(self._context)
        if self._log is not None:
            self._log.sampled(sampled)
            self._log.end(TurnOutcome("stop"))
        calls = messages[-1]["role"] == "user"
        yield TurnEnded("call" if calls else "stop", len(new), len(sampled), 2)

    async def remember(self, answer: Sequence[Message]) -> None:
        """Do nothing."""

    async def expect_pause(self, seconds: float) -> None:
        """Do nothing."""

    async def close(self, *, follow_up: bool = False) -> None:
        """Do nothing."""


async def played(*turns: Sequence[Message], has_tokens: bool = True) -> TrajectoryRecorder:
    recorder = TrajectoryRecorder("s")
    log = RecordedLog(recorder, "key", "m")
    inner = SeeingSession(log, has_tokens)
    session = RecordedSession(inner, log)
    for messages in turns:
        async for _ in session.turn(messages):
            pass
    await session.close()
    if has_tokens:
        assert recorder.trajectory().rollout().ids == tuple(inner.tokens)
    return recorder


RESULT: Message = {"role": "tool", "tool_call_id": "a", "content": [image(b"b")]}


async def test_what_follows_a_picture_is_recorded_though_the_engine_logs_nothing() -> None:
    recorder = await played(
        [{"role": "user", "content": "Hi."}], [RESULT], [{"role": "user", "content": "And?"}]
    )
    (branch,) = recorder.trajectory().branches
    parts = branch.segments
    assert [each.source for each in parts] == [
        *("prompt", "sampled", "tool", "sampled"),
        *("user", "sampled"),
    ]
    assert [each.media for each in parts] == [
        *((), (), (Medium("image", digest(b"b"), 2, 0),)),
        *((), (), ()),
    ]
    assert [each.messages for each in parts] == [(at, at + 1) for at in range(6)]
    assert [each.stop_reason for each in parts] == [None, "call", None, "stop", None, "call"]
    assert [each.cached_tokens for each in parts[1::2]] == [0, 2, 2]
    assert all(each.seconds is not None for each in parts[1::2])


async def test_pictures_of_the_first_turn_and_a_later_one() -> None:
    recorder = await played([shown(b"a")], [RESULT], [shown(b"c", b"a")])
    media = [each.media for each in recorder.trajectory().branches[0].segments]
    places = [[(each.digest, each.message, each.part) for each in held] for held in media]
    assert places == [
        *([(digest(b"a"), 0, 1)], [], [(digest(b"b"), 2, 0)], []),
        *([(digest(b"c"), 4, 1), (digest(b"a"), 4, 2)], []),
    ]


async def test_an_engine_that_keeps_its_tokens_says_so() -> None:
    recorder = await played([shown(b"a")], has_tokens=False)
    with pytest.raises(UsageError, match="keeps the tokens behind pictures and sounds to itself"):
        recorder.trajectory()
