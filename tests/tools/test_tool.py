import asyncio
import dataclasses
import functools
import threading

import pytest

from caesura.tools import Tool, tool

NO_ARGUMENTS = {"type": "object", "properties": {}}


async def nothing() -> None:
    pass


def make(**options) -> Tool:
    return Tool("t", "", NO_ARGUMENTS, nothing, **options)


def test_the_bare_decorator_takes_name_and_description_from_the_function():
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add numbers."""
        return a + b

    assert add.spec() == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add numbers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "integer", "default": 2},
                },
                "required": ["a"],
                "additionalProperties": False,
            },
        },
    }
    assert (add.timeout_seconds, add.retries, add.concurrency) == (30.0, 0, None)


def test_the_decorator_with_options():
    @tool(
        name="sum",
        description="Sum.",
        timeout_seconds=5,
        retries=2,
        safe_to_repeat=True,
        concurrency=3,
    )
    def add(a: int) -> int:
        """Add numbers."""
        return a

    assert (add.name, add.description, add.timeout_seconds) == ("sum", "Sum.", 5)
    assert (add.retries, add.safe_to_repeat, add.concurrency) == (2, True, 3)


async def test_a_decorated_function_is_still_called_like_the_function():
    @tool
    def plain(a: int, b: int = 2) -> int:
        return a + b

    @tool
    async def later(a: int) -> int:
        return a

    assert plain(1) == 3
    assert plain(1, b=5) == 6
    assert plain.function(1) == 3
    assert await later(4) == 4


async def test_a_plain_function_runs_in_a_thread_and_an_async_one_does_not():
    @tool
    def plain() -> int:
        return threading.get_ident()

    @tool
    async def later() -> int:
        return threading.get_ident()

    here = threading.get_ident()
    assert await plain.call() != here
    assert await later.call() == here


async def test_a_plain_wrapper_around_an_async_function_is_awaited():
    async def double(x: int) -> int:
        await asyncio.sleep(0)
        return 2 * x

    @tool
    @functools.wraps(double)
    def wrapper(*args, **kwargs):
        return double(*args, **kwargs)

    assert await wrapper.call(**wrapper.arguments('{"x": "4"}')) == 8


async def test_stop_iteration_in_a_thread_is_an_error_not_a_hang():
    @tool
    def first() -> int:
        return next(iter([]))

    async with asyncio.timeout(60):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await first.call()


async def test_from_schema_sync_and_async():
    parameters = {
        "type": "object",
        "properties": {"not-an-identifier": {"type": "integer"}},
        "required": ["not-an-identifier"],
    }

    async def later(**kwargs):
        return kwargs

    for call in (later, lambda **kwargs: kwargs):
        made = Tool.from_schema("echo", "Echo.", parameters, call, timeout_seconds=1)
        assert made.spec()["function"]["parameters"] == parameters
        assert made.timeout_seconds == 1
        kwargs = made.arguments('{"not-an-identifier": "1"}')
        assert await made.call(**kwargs) == {"not-an-identifier": 1}


def test_a_tools_schema_cannot_be_changed():
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = Tool("t", "", parameters, nothing)
    parameters["properties"]["a"]["type"] = "string"
    made.spec()["function"]["parameters"]["properties"].clear()
    assert made.parameters == {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": 1}, "retries need safe_to_repeat=True"),
        ({"retries": -1, "safe_to_repeat": True}, "retries must be >= 0, got"),
        ({"timeout_seconds": 0}, "timeout_seconds must be positive"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds must be positive"),
        ({"concurrency": 0}, "concurrency must be >= 1"),
        ({"max_result_tokens": 0}, "max_result_tokens must be >= 1"),
        ({"breaker": 0}, "breaker must be >= 1"),
        ({"expected_seconds": -1.0}, "expected_seconds must be positive"),
        ({"cuts": True}, "cuts=True needs background=True"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=f"tool 't': {message}"):
        make(**options)


def test_the_decorator_takes_every_option():
    options = {
        "timeout_seconds": 5.0,
        "retries": 2,
        "safe_to_repeat": True,
        "when_unknown": "fail",
        "concurrency": 4,
        "max_result_tokens": 500,
        "breaker": 3,
        "approval": True,
        "waits_for_person": True,
        "expected_seconds": 0.5,
        "background": True,
        "cuts": True,
    }

    @tool(name="n", description="d", **options)
    def made() -> None:
        pass

    assert {name: getattr(made, name) for name in options} == options
    assert (made.name, made.description) == ("n", "d")
    fields = {each.name for each in dataclasses.fields(Tool)}
    assert set(options) == fields - {
        *("name", "description", "parameters", "call", "function", "validate"),
        "contexts",
    }
    with pytest.raises(TypeError, match="patience"):
        tool(patience=1)(lambda: None)


def test_a_schema_of_another_type_is_refused():
    with pytest.raises(ValueError, match='"type": "object"'):
        Tool("t", "", {"type": "string"}, nothing)


def test_a_tool_is_frozen_hashable_and_can_be_varied():
    made = make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.retries = 3
    varied = dataclasses.replace(made, timeout_seconds=1.0)
    assert varied.timeout_seconds == 1.0
    assert len({made, varied, made}) == 2
