"""Typed answers: what is sent, read, refused, tried again and streamed, on scripted engines."""

import enum
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AnyUrl, BaseModel, Field, field_validator
from typing_extensions import TypedDict
from vllm.v1.structured_output.backend_xgrammar import has_xgrammar_unsupported_json_features

from caesura.runtime.errors import InvalidOutput, LimitReached, UsageError
from caesura.runtime.events import OutputRefused, OutputWritten, RunEnded
from caesura.runtime.run.limits import Limits
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.sdk.output import enforceable, json_so_far
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.scheduler.messages import Sampling, TextFormat
from caesura.tools import tool
from caesura.tools.errors import ToolError


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int

    @field_validator("age")
    @classmethod
    def _alive(cls, age: int) -> int:
        if age > 150:
            raise ValueError("nobody is that old")
        return age


@dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict):
    title: str


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


ADA = '{"name": "Ada", "age": 36}'
OLD = '{"name": "Ada", "age": 360}'


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Person, ADA, Person(name="Ada", age=36)),
        (Point, '{"x": 1}', Point(1)),
        (Row, '{"title": "a"}', {"title": "a"}),
        (list[Person], f"[{ADA}]", [Person(name="Ada", age=36)]),
        (Person | Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (int | None, "null", None),
        (int, "7", 7),
        (Colour, '"blue"', Colour.BLUE),
        (Literal["yes", "no"], '"no"', "no"),
        (set[int], "[1, 2]", {1, 2}),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Annotated[str, Field(max_length=3)], '"abc"', "abc"),
    ],
)
async def test_an_answer_has_its_type(output: Any, text: str, value: Any) -> None:
    async with ScriptedEngine([call("double", n=2), say(text)]) as engine:
        answer = await Agent(engine, [double], output=output).run("Go.")
    assert answer.output == value and type(answer.output) is type(value)
    assert (answer.text, len(answer.calls)) == (text, 1)
    forms = [sampling.text for sampling in engine.sessions[0].samplings]
    assert forms[0] is not None and forms[0].kind == "json_schema" and forms == [forms[0]] * 2


async def test_an_answer_without_a_type_is_its_text() -> None:
    async with ScriptedEngine([say("a"), say("b")]) as engine:
        assert (await Agent(engine).run("Go.")).output == "a"
        assert (await Agent(engine, output=str).run("Go.")).output == "b"
    assert [session.samplings[0].text for session in engine.sessions] == [None, None]
    assert all(len(session.messages) == 2 for session in engine.sessions)


async def test_the_model_is_told_the_schema_behind_the_instructions() -> None:
    async with ScriptedEngine([say(ADA)]) as engine:
        await Agent(engine, instructions="Be brief.", output=Person).run("Go.")
    told = engine.sessions[0].messages[0]
    assert told["role"] == "system"
    assert told["content"].startswith("Be brief.\n\nYour final answer is JSON")
    assert '"description":"Somebody."' in told["content"] and '"title"' not in told["content"]


async def test_what_does_not_fit_is_told_and_tried_again() -> None:
    engine = ScriptedEngine([call("double", n=2), say(OLD), say("Hello."), say(ADA)])
    async with engine, Agent(engine, [double], output=Person).session() as session:
        answer = await session.run("Who?")
        assert session.messages == engine.sessions[0].messages
    assert answer.output == Person(name="Ada", age=36)
    assert (answer.usage.turns, answer.usage.calls) == (4, 1) and answer.usage == session.usage
    [_, _, first, second] = [turn[-1]["content"] for turn in engine.sessions[0].turns]
    assert "age: Value error, nobody is that old" in first
    assert "Invalid JSON" in second


async def test_the_last_answer_that_does_not_fit_is_an_error() -> None:
    engine = ScriptedEngine([say(OLD), say(OLD), say(ADA)])
    async with engine, Agent(engine, output=Person, output_retries=1).session() as session:
        with pytest.raises(InvalidOutput, match=r"in 2 tries: age: .* that old") as caught:
            await session.run("Who?")
        assert caught.value.text == OLD
        assert (await session.run("Again?")).output.age == 36
    assert len(engine.sessions) == 1


async def test_a_cut_answer_is_an_error_and_is_not_tried_again() -> None:
    engine = ScriptedEngine([say(ADA)])
    with pytest.raises(InvalidOutput, match="a token limit cut the answer behind 3 tokens"):
        await Agent(engine, output=Person, sampling=Sampling(max_tokens=3)).run("Who?")
    assert len(engine.sessions[0].turns) == 1


async def test_tries_share_the_limits_of_the_run() -> None:
    engine = ScriptedEngine([say(OLD)] * 2)
    agent = Agent(engine, output=Person, limits=Limits(max_turns=2), output_retries=5)
    async with engine, agent.session() as session:
        with pytest.raises(LimitReached, match="max_turns=2"):
            await session.run("Who?")
        assert [m["role"] for m in session.messages[-2:]] == ["user", "assistant"]


async def test_sessions_have_typed_answers() -> None:
    engine = ScriptedEngine([say('{"x": 1}'), say('{"x": 2}')])
    async with engine, Agent(engine, output=Point).session() as session:
        assert (await session.run("1")).output.x == 1
        assert (await session.run("2")).output.x == 2


def test_run_sync_has_typed_answers() -> None:
    agent = Agent(ScriptedEngine([say('{"x": 1}')]), output=Point)
    assert agent.run_sync("1").output == Point(1)


# -- functions -----------------------------------------------------------------------------------


def ship(item: str, count: int) -> Point:
    """Ship items.

    Args:
        count: how many, at most ten.
    """
    if count > 10:
        raise ValueError("at most ten fit")
    if item == "bomb":
        raise ToolError("no bombs")
    if item == "bug":
        raise KeyError(item)
    return Point(count)


async def ship_later(item: str, count: int) -> Point:
    return ship(item, count)


@pytest.mark.parametrize("function", [ship, ship_later, tool(ship)])
async def test_a_function_makes_the_output_and_refuses(function: Any) -> None:
    script = [
        say('{"item": "lamp", "count": 11}'),
        say('{"item": "bomb", "count": 1}'),
        say('{"item": "lamp"}'),
        say('{"item": "lamp", "count": 3}'),
    ]
    async with ScriptedEngine(script) as engine:
        answer = await Agent(engine, output=function, output_retries=3).run("Ship lamps.")
    assert answer.output == Point(3)
    told = [turn[-1]["content"] for turn in engine.sessions[0].turns[1:]]
    for text, reason in zip(told, ("at most ten fit", "no bombs", "'count'"), strict=True):
        assert reason in text


async def test_other_errors_of_a_function_are_raised() -> None:
    engine = ScriptedEngine([say('{"item": "bug", "count": 1}'), say('{"item": "a", "count": 1}')])
    async with engine, Agent(engine, output=ship).session() as session:
        with pytest.raises(KeyError, match="bug"):
            await session.run("Ship.")
        assert (await session.run("Ship.")).output == Point(1)


async def test_the_model_is_told_what_a_function_is_for() -> None:
    async with ScriptedEngine([say('{"item": "a", "count": 1}')]) as engine:
        await Agent(engine, output=ship).run("Ship.")
    told = engine.sessions[0].messages[0]["content"]
    assert "Ship items." in told and "how many, at most ten." in told


# -- streams -------------------------------------------------------------------------------------


async def streamed(output: Any, *texts: str) -> list[Any]:
    async with ScriptedEngine([*map(say, texts)], piece_characters=1) as engine:
        return [event async for event in Agent(engine, output=output).stream("Go.")]


def written(events: list[Any]) -> list[tuple[Any, Any]]:
    found = [event for event in events if isinstance(event, OutputWritten)]
    assert [event.complete for event in found] == [False] * (len(found) - 1) + [True]
    return [(event.value, event.output) for event in found]


async def test_a_list_grows_by_whole_items() -> None:
    events = await streamed(list[Point], '[{"x": 12}, {"x": 3, "y": 4}]')
    lengths = [len(output) for _, output in written(events)]
    assert lengths == sorted(lengths) and {0, 1, 2} <= set(lengths)
    for _, output in written(events):
        assert output in ([], [Point(12)], [Point(12), Point(3)], [Point(12), Point(3, 4)])
    assert isinstance(events[-1], RunEnded) and isinstance(events[-2], OutputWritten)


async def test_a_model_comes_once_what_it_requires_is_there() -> None:
    class Story(BaseModel):
        title: str
        mood: Literal["merry", "sad"] = "sad"
        lines: list[str] = []

    text = '{"title": "Rain", "mood": "merry", "lines": ["a b", "c"]}'
    found = written(await streamed(Story, text))
    assert found[0] == ({}, None)
    titles = [output.title for _, output in found if output is not None]
    assert titles[:5] == ["", "R", "Ra", "Rai", "Rain"]
    half = next(output for value, output in found if value.get("mood") == "mer")
    assert half == Story(title="Rain")
    assert ["a b"] in [output.lines for _, output in found if output is not None]
    assert found[-1][1] == Story(title="Rain", mood="merry", lines=["a b", "c"])


async def test_a_stream_tells_of_a_refused_answer() -> None:
    events = await streamed(Person, OLD, ADA)
    [refused] = [event for event in events if isinstance(event, OutputRefused)]
    assert refused.text == OLD and "nobody is that old" in refused.reason
    behind = events[events.index(refused) :]
    assert written(behind)[0][0] == {}
    assert written(events)[-1] == (json.loads(ADA), Person(name="Ada", age=36))
    assert [isinstance(event, RunEnded) for event in events].count(True) == 1
    assert events[-1].usage.turns == 2


async def test_a_function_is_called_once_at_the_end() -> None:
    called = []

    def note(text: str) -> int:
        called.append(text)
        return len(text)

    found = written(await streamed(note, '{"text": "abc"}'))
    assert called == ["abc"]
    assert {"text": "ab"} in [value for value, _ in found]
    assert [output for _, output in found] == [None] * (len(found) - 1) + [3]


async def test_long_answers_are_read_in_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counted(text: str) -> Any:
        nonlocal read
        read += len(text)
        return json_so_far(text)

    monkeypatch.setattr("caesura.runtime.sdk.output.json_so_far", counted)
    text = json.dumps(["word"] * 2000)
    await streamed(list[str], text)
    assert read < 100 * len(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 12', {}),
        ('{"a": 12,', {"a": 12}),
        ('{"a": [1, -', {"a": [1]}),
        ('{"a": "x: 12', {"a": "x: 12"}),
        ("[true, 1e", [True]),
    ],
)
def test_a_number_counts_when_its_digits_are_over(text: str, value: Any) -> None:
    assert json_so_far(text) == value


# -- schemas -------------------------------------------------------------------------------------


class Odd(BaseModel):
    half: Annotated[float, Field(multiple_of=0.5)]
    tags: set[str]
    code: Annotated[str, Field(pattern="^[a-z]+$", max_length=4)]
    page: AnyUrl
    raw: bytes
    by_name: dict[Annotated[str, Field(pattern="^a", max_length=3)], int]
    uniqueItems: int  # noqa: N815


def test_the_grammar_gets_what_it_can_express() -> None:
    schema = Odd.model_json_schema()
    assert has_xgrammar_unsupported_json_features(schema)
    enforced = enforceable(schema)
    assert not has_xgrammar_unsupported_json_features(enforced)
    assert enforced["properties"].keys() == schema["properties"].keys()
    assert enforced["properties"]["code"]["pattern"] == "^[a-z]+$"
    assert enforced["properties"]["page"]["format"] == "uri"
    assert schema == Odd.model_json_schema()


async def test_what_the_grammar_leaves_open_is_validated() -> None:
    output = Annotated[float, Field(multiple_of=0.5)]
    async with ScriptedEngine([say("0.3"), say("1.5")]) as engine:
        assert (await Agent(engine, output=output).run("Go.")).output == 1.5
    assert engine.sessions[0].samplings[0].text == TextFormat("json_schema", {"type": "number"})


# -- mistakes ------------------------------------------------------------------------------------


def untyped(a):
    return a


def starred(*numbers: int) -> int:
    return sum(numbers)


class Plain:
    """A class that pydantic cannot read."""


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (untyped, "output=untyped .*'a' has no type annotation; write for example `a: str`"),
        (starred, r"output=starred .*\*numbers has no schema"),
        (Plain, "output=Plain gives no JSON schema: Unable to generate"),
        (Person(name="Ada", age=1), "output=Person.* gives no JSON schema"),
        ("Persona", "output='Persona' gives no JSON schema"),
        (type(lambda: 1), "output=function gives no JSON schema"),
    ],
)
def test_what_has_no_schema_is_refused_in_a_line(output: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        Agent(ScriptedEngine(), output=output)
    assert "\n" not in str(caught.value)


def test_two_formats_and_odd_retries_are_refused() -> None:
    text = TextFormat("json_object")
    with pytest.raises(UsageError, match=r"sampling.text is json_object, and output sets"):
        Agent(ScriptedEngine(), output=int, sampling=Sampling(text=text))
    odd: list[Any] = [-1, 1.5, "2", True]
    for retries in odd:
        with pytest.raises(UsageError, match="output_retries must be a whole number"):
            Agent(ScriptedEngine(), output=int, output_retries=retries)


def test_the_example_runs() -> None:
    example = Path(__file__).parents[3] / "examples" / "13_typed_answers.py"
    done = subprocess.run(
        [sys.executable, example], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Offer(item='lamp', count=7, euros=168) after 1 call" in done.stdout
    assert "refused: [1].euros: Field required" in done.stdout
    assert "paid 24 euros in 2 tries" in done.stdout


def test_agents_without_an_output_do_not_load_what_it_needs() -> None:
    code = (
        "import sys, caesura; caesura.Agent; assert 'caesura.runtime.sdk.output' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
