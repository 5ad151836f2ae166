"""Calls that a turn ends in: none is run with a part of its arguments."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from caesura.intercept.calls.events import CallFinished, CallMalformed
from caesura.intercept.calls.formats import TURN_FORMATS
from caesura.intercept.calls.watch import Verdict
from caesura.runtime.events import RunEnded, ToolReturned
from caesura.runtime.run.context import RunContext
from caesura.runtime.run.loop import run
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.tools import Dispatcher, Registry
from caesura.tools import tool as tool_of
from tests.formats.rendering import RENDER, Call
from tests.formats.speaking import Engine
from tests.formats.world import Outcome, StandIn, decode, stand_in, tool

SHELL = tool("shell", command={"type": "string"}, timeout={"type": "integer"})
SHELL["function"]["parameters"]["required"] = ["command"]
CALL = Call("shell", {"command": "rm -rf /srv/build/old", "timeout": 30})
RAN = [(CALL.name, dict(CALL.arguments))]
END = {"harmony": "<|return|>"}
"""The token that ends a turn without closing a call, where it is not the family's only one."""


def ran(outcome: Outcome) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in outcome.calls]


def prefixes(model: StandIn) -> Sequence[Sequence[int]]:
    tokens = model.by_bytes(RENDER[model.name]([CALL]))
    return [tokens[:size] for size in range(len(tokens) + 1)]


@pytest.mark.parametrize("name", RENDER)
def test_a_prefix_of_a_call_that_the_model_ends_never_runs_with_other_arguments(name: str) -> None:
    model = stand_in(name)
    for tokens in prefixes(model):
        for step in (1, len(tokens) + 1):
            outcome = decode(model, tokens, [SHELL], step, end=END.get(name, ""))
            assert ran(outcome) in ([], RAN), tokens
            if outcome.malformed:
                assert outcome.verdict is Verdict.CALL, "the engine ended what the model is told of"


@pytest.mark.parametrize("name", RENDER)
def test_no_call_that_ends_as_the_token_limit_is_met_is_run(name: str) -> None:
    model = stand_in(name)
    for tokens in prefixes(model):
        assert ran(decode(model, tokens, [SHELL], len(tokens) + 1, cut=True)) == []
        assert ran(decode(model, tokens, [SHELL], 1, cut=True)) in ([], RAN)


@pytest.mark.parametrize(
    "name",
    [
        "hermes",
        "qwen3_coder",
        "glm",
        "longcat",
        "internlm",
        "minimax_m2",
        "deepseek_v4",
        "deepseek_v31",
        "kimi_k2",
    ],
)
def test_a_call_without_its_closing_marker_is_refused(name: str) -> None:
    model, row = stand_in(name), TURN_FORMATS[name]
    text = RENDER[name]([CALL]).removesuffix(row.section[1]).removesuffix(row.closes or "")
    for step in (1, len(text)):
        outcome = decode(model, model.by_bytes(text), [SHELL], step)
        assert not outcome.calls
        assert [call.name for call in outcome.malformed] == ["shell"]
        assert "before the call was closed" in outcome.malformed[0].reason
        assert outcome.shown == ""


def test_a_line_that_the_model_ends_without_a_line_break_is_complete() -> None:
    model = stand_in("react")
    text = "Action: note\nAction Input: delete nothing"
    note = tool("note", text={"type": "string"})
    assert ran(decode(model, model.by_bytes(text), [note])) == [
        ("note", {"text": "delete nothing"})
    ]
    assert ran(decode(model, model.by_bytes(text), [note], cut=True)) == []


@pytest.mark.parametrize("reason", ["stop", "length"])
@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "glm", "react"])
async def test_a_run_whose_turn_ends_within_a_call_executes_nothing(name: str, reason: str) -> None:
    executed = []

    @tool_of
    def shell(command: str, timeout: int = 600) -> str:
        """Run a command."""
        executed.append((command, timeout))
        return "done"

    text = RENDER[name]([CALL])
    cut = text[: text.index("/old") if name == "hermes" else text.index("timeout") + 3]
    if name == "react":
        cut = "Action: shell\nAction Input:" + (" rm -rf /srv" if reason == "length" else "")
    engine: Any = Engine(name, stand_in(name).by_bytes(cut), reason)
    session = VllmSession(engine, SessionSpec((SHELL,)))
    registry = Registry([shell])
    events = [
        event
        async for event in run(
            session,
            [{"role": "user", "content": "Clean up."}],
            Dispatcher(registry),
            RunContext(registry, sampling=Sampling()),
        )
    ]
    assert executed == []
    assert not [event for event in events if isinstance(event, CallFinished)]
    (refused,) = (event for event in events if isinstance(event, CallMalformed))
    assert refused.name == "shell"
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert ended.reason == reason
    told = [event.result for event in events if isinstance(event, ToolReturned)]
    assert [bool(result.error) for result in told] == ([True] if reason == "stop" else [])
    await session.close()
