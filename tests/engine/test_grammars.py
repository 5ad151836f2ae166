"""Grammars of turns on the real engine: schemas, forced calls, and log probabilities.

The bundled model is small, but a grammar makes it obey.
"""

import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from caesura.intercept.calls.events import CallFinished, Event, TextDelta, TurnEnded
from caesura.runtime.errors import UsageError
from caesura.scheduler.messages import CallRule, Message, Sampling, SessionSpec, TextFormat
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.tools.calculator.tool import calculator
from tests.engine.asked import HELLO, PERSON, TOOLS

pytestmark = pytest.mark.engine

YES_OR_NO = TextFormat("choice", ("yes", "no"))
Open = Callable[..., VllmSession]


def sampling(**given: Any) -> Sampling:
    return Sampling(temperature=0, max_tokens=200, **given)


@pytest.fixture
async def open_session(engine: VllmEngine, settled: Any) -> AsyncIterator[Open]:
    opened: list[VllmSession] = []

    def open_one(tools: Sequence[Any] = TOOLS, **given: Any) -> VllmSession:
        opened.append(engine.open(SessionSpec(tools, **given)))
        return opened[-1]

    yield open_one
    for session in opened:
        await session.close()


async def read(
    session: VllmSession, messages: Sequence[Message], settings: Sampling
) -> list[Event]:
    return [event async for event in session.turn(messages, settings)]


def calls_of(events: Sequence[Event]) -> list[CallFinished]:
    return [event for event in events if isinstance(event, CallFinished)]


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def reason_of(events: Sequence[Event]) -> str:
    assert isinstance(events[-1], TurnEnded)
    return events[-1].reason


def answers(calls: Sequence[CallFinished], content: str = "42") -> list[Message]:
    return [
        {"role": "tool", "tool_call_id": call.call_id, "name": call.name, "content": content}
        for call in calls
    ]


async def test_each_turn_of_a_session_has_its_own_grammar(open_session: Open) -> None:
    """A forced call, then a schema, then a choice, then free text: none leaks into the next."""
    session = open_session()
    forced = sampling(calls=CallRule(required=True, names=("lookup",)))
    events = await read(session, HELLO, forced)
    (call,) = calls_of(events)
    assert reason_of(events) == "call" and text_of(events) == ""
    assert json.loads(call.arguments)["word"] in ("alpha", "beta")
    events = await read(session, answers([call]), sampling(text=PERSON, calls=CallRule(names=())))
    assert reason_of(events) == "stop"
    assert set(json.loads(text_of(events))) == {"name", "age"}
    events = await read(session, HELLO, sampling(text=YES_OR_NO, calls=CallRule(names=())))
    assert text_of(events) in ("yes", "no")
    events = await read(session, HELLO, sampling())
    assert text_of(events) not in ("", "yes", "no") and "{" not in text_of(events)


async def test_a_paused_session_that_was_free_gets_a_grammar(open_session: Open) -> None:
    session = open_session()
    question: list[Message] = [{"role": "user", "content": "What is 48 * 17?"}]
    events = await read(session, question, sampling())
    assert reason_of(events) == "call"
    later = sampling(text=PERSON, calls=CallRule(names=()))
    events = await read(session, answers(calls_of(events), "816"), later)
    assert set(json.loads(text_of(events))) == {"name", "age"}


async def test_calls_or_a_schema(engine: VllmEngine, open_session: Open) -> None:
    """With tools and an output format, the model calls or answers in the format."""
    session = open_session()
    question: list[Message] = [{"role": "user", "content": "What is 48 * 17?"}]
    events = await read(session, question, sampling(text=PERSON))
    assert reason_of(events) == "call"
    assert text_of(events) == ""
    tokens = engine.tokenizer.get_vocab().items()
    no_call = {token_id: -100.0 for token, token_id in tokens if "<" in token}
    settings = sampling(text=PERSON, logit_bias=no_call)
    events = await read(session, answers(calls_of(events), "816"), settings)
    if reason_of(events) == "length":  # the model wrote up to its limit
        assert text_of(events).lstrip()[:1] == "{"
    else:
        assert set(json.loads(text_of(events))) == {"name", "age"}


async def test_one_call_at_most(open_session: Open) -> None:
    question: list[Message] = [{"role": "user", "content": "What is 3 * 4, and what is 5 * 6?"}]
    several = calls_of(await read(open_session(), question, sampling()))
    single = sampling(calls=CallRule(required=True, single=True))
    assert len(calls_of(await read(open_session(), question, single))) == 1
    assert len(several) != 1, "this question no longer shows the difference"


async def test_strict_arguments_follow_their_schema(open_session: Open) -> None:
    question: list[Message] = [{"role": "user", "content": "What is 48 * 17?"}]
    strict = {
        "type": "function",
        "function": {
            **calculator.spec()["function"],
            "parameters": {
                "type": "object",
                "properties": {"expression": {"type": "string", "enum": ["1+1", "2+2"]}},
                "required": ["expression"],
                "additionalProperties": False,
            },
        },
    }
    settings = sampling(calls=CallRule(strict=frozenset({"calculator"})))
    (call,) = calls_of(await read(open_session([strict]), question, settings))
    assert json.loads(call.arguments)["expression"] in ("1+1", "2+2")


@pytest.mark.parametrize(
    ("form", "fits"),
    [
        pytest.param(TextFormat("regex", "[0-9]{3}-[0-9]{2}"), lambda t: len(t) == 6, id="regex"),
        pytest.param(YES_OR_NO, lambda t: t in ("yes", "no"), id="choice"),
        # The bundled model may write a text without end in it.
        pytest.param(TextFormat("json_object"), lambda t: t.startswith("{"), id="object"),
        pytest.param(
            TextFormat("grammar", 'root ::= "a" [0-9] "b"'),
            lambda t: t[0] + t[2] == "ab",
            id="ebnf",
        ),
    ],
)
async def test_formats_without_tools(open_session: Open, form: TextFormat, fits: Any) -> None:
    said = text_of(await read(open_session(()), HELLO, sampling(text=form)))
    assert fits(said)


async def test_what_no_grammar_can_say_is_refused(open_session: Open) -> None:
    with pytest.raises(UsageError, match="multipleOf"):
        odd = TextFormat("json_schema", {"type": "integer", "multipleOf": 3})
        await read(open_session(), HELLO, sampling(text=odd))
    with pytest.raises(UsageError, match="no tool may be called"):
        await read(open_session(()), HELLO, sampling(calls=CallRule(required=True)))


async def test_logprobs_belong_to_the_shown_text(open_session: Open) -> None:
    session = open_session()
    events = await read(session, HELLO, sampling(logprobs=3))
    shown = [event for event in events if isinstance(event, TextDelta)]
    tokens = [token for event in shown for token in event.logprobs]
    assert b"".join(token.data for token in tokens).decode() == text_of(events)
    for token in tokens:
        assert len(token.top) == 3
        assert math.isclose(token.top[0].logprob, token.logprob)  # greedy: the likeliest
        assert token.logprob <= 0


async def test_logprobs_leave_calls_out(open_session: Open) -> None:
    question: list[Message] = [{"role": "user", "content": "What is 48 * 17?"}]
    session = open_session()
    events = await read(session, question, sampling(logprobs=0))
    assert not any(event.logprobs for event in events if isinstance(event, TextDelta))
    events = await read(session, answers(calls_of(events), "816"), sampling(logprobs=0))
    tokens = [t for event in events if isinstance(event, TextDelta) for t in event.logprobs]
    assert "".join(token.token for token in tokens) == text_of(events)
    assert not any(token.top for token in tokens)


async def test_sampling_fields_reach_the_engine(engine: VllmEngine, open_session: Open) -> None:
    said = text_of(await read(open_session(()), HELLO, sampling()))
    first, second, *_ = engine.tokenizer.encode(said, add_special_tokens=False)
    banned = sampling(logit_bias={first: -100.0})
    other = text_of(await read(open_session(()), HELLO, banned))
    assert engine.tokenizer.encode(other, add_special_tokens=False)[0] != first
    word = said.split()[1]
    assert word not in text_of(await read(open_session(()), HELLO, sampling(bad_words=(word,))))
    cut = text_of(await read(open_session(), HELLO, sampling(stop_token_ids=(second,))))
    assert cut == engine.tokenizer.decode([first])


async def test_a_turn_behind_a_given_begin(engine: VllmEngine, open_session: Open) -> None:
    whole = text_of(await read(open_session(()), HELLO, sampling()))
    begin = whole[: len(whole) // 2].rstrip()
    session = open_session((), prefill=True)
    messages = [*HELLO, {"role": "assistant", "content": begin}]
    rest = text_of(await read(session, messages, sampling()))
    assert begin in engine.tokenizer.decode(session.tokens)
    await read(session, HELLO, sampling())
    assert session._conversation.history[1]["content"] == begin + rest


async def test_salts_keep_the_prefix_cache_apart(open_session: Open) -> None:
    messages: list[Message] = [{"role": "user", "content": "Say something. " * 30}]

    async def cached(salt: str | None) -> int:
        events = await read(open_session((), cache_salt=salt), messages, sampling())
        assert isinstance(events[-1], TurnEnded)
        return events[-1].cached_tokens

    await cached("a")
    assert await cached("b") == 0
    assert await cached("a") > 0


async def test_a_priority_needs_a_scheduler_by_priority(open_session: Open) -> None:
    with pytest.raises(UsageError, match="--scheduling-policy priority"):
        open_session((), priority=1)
