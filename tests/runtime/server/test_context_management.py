"""`context_management` of messages: what is cleared, what is compacted, and what the client learns.

Anthropic's own client sends the requests and reads the answers.
"""

import random
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import anthropic
import pytest
from starlette.responses import JSONResponse

from caesura.runtime.server.api.compaction import HEADING, SUMMARISE
from caesura.runtime.server.api.context_management import (
    CLEARED,
    ClearToolUses,
    Growth,
    Tokens,
    Uses,
    tool_uses,
    uses_to_clear,
    without_uses,
)
from caesura.runtime.testing import call, say, think
from caesura.scheduler.messages import Message
from caesura.scheduler.vllm_server import VllmServer
from tests.kit.server import MODEL, counted
from tests.runtime.server.said import HELLO, WEATHER

CLEARS: dict[str, Any] = {"type": "clear_tool_uses_20250919"}
COMPACTS: dict[str, Any] = {"type": "compact_20260112"}
WORDS = 200


class Client:
    """Anthropic's client, with the beta headers of both kinds of edits."""

    def __init__(self, url: str) -> None:
        self.own = anthropic.AsyncAnthropic(base_url=url, api_key="any", max_retries=0)

    async def ask(
        self, messages: list[Any], *edits: Any, streams: bool = False, **fields: Any
    ) -> Any:
        asked: Any = {"model": MODEL, "max_tokens": 100, "messages": messages, "tools": [WEATHER]}
        asked |= {"betas": ["context-management-2025-06-27", "compact-2026-01-12"]} | fields
        if edits:
            asked["context_management"] = {"edits": list(edits)}
        if not streams:
            return await self.own.beta.messages.create(**asked)
        async with self.own.beta.messages.stream(**asked) as stream:
            return await stream.get_final_message()


@pytest.fixture
async def connect() -> AsyncIterator[Any]:
    clients: list[Client] = []

    def make(served: Any) -> Client:
        clients.append(Client(served.url))
        return clients[-1]

    yield make
    for client in clients:
        await client.own.close()


def step(number: int, tool: str = "weather", words: int = WORDS) -> list[Any]:
    """A call of a tool and its result, which begins with its number."""
    block = {"type": "tool_use", "id": f"call{number:05}", "name": tool, "input": {"city": "Ulm"}}
    result = {"type": "tool_result", "tool_use_id": block["id"]}
    told = f"result{number}" + " rain" * (words - 1)
    return [
        {"role": "assistant", "content": [block]},
        {"role": "user", "content": [result | {"content": told}]},
    ]


def steps(count: int, **fields: Any) -> list[Any]:
    return [HELLO, *(each for number in range(count) for each in step(number, **fields))]


def shown(served: Any, session: int = -1) -> list[Message]:
    """The messages of the prompt of a session."""
    return list(served.engine.sessions[session].turns[0])


def results(messages: Sequence[Message]) -> list[str]:
    """The results, of which only the begin is left."""
    said = [str(message["content"]) for message in messages if message["role"] == "tool"]
    return ["cleared" if text == CLEARED else text.partition(" ")[0] for text in said]


@pytest.mark.parametrize("streams", [False, True])
async def test_the_oldest_results_are_cleared(
    serve_script: Any, connect: Any, streams: bool
) -> None:
    served = await serve_script([say("Rain.")])
    edit = CLEARS | {
        "trigger": {"type": "input_tokens", "value": 900},
        "keep": {"type": "tool_uses", "value": 1},
    }
    answer = await connect(served).ask(steps(5), edit, streams=streams)
    messages = shown(served)
    assert results(messages) == ["cleared"] * 4 + ["result4"]
    [caller, *_] = (each for each in messages if each["role"] == "assistant")
    assert caller["tool_calls"][0]["function"]["arguments"] == '{"city": "Ulm"}'
    [applied] = answer.context_management.applied_edits
    assert (applied.type, applied.cleared_tool_uses) == (edit["type"], 4)
    prompt = answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    whole = await served.engine.count_prompt(served.engine.sessions[-1].spec, messages)
    assert prompt == whole
    assert 4 * WORDS - 100 < applied.cleared_input_tokens < 4 * WORDS


@pytest.mark.parametrize(
    ("fields", "left", "cleared"),
    [
        ({"trigger": {"type": "input_tokens", "value": 5000}}, list(range(5)), 0),
        ({"trigger": {"type": "tool_uses", "value": 5}}, list(range(5)), 0),
        ({"trigger": {"type": "tool_uses", "value": 4}}, [2, 3, 4], 2),
        ({"clear_at_least": {"type": "input_tokens", "value": 5 * WORDS}}, list(range(5)), 0),
        ({"exclude_tools": ["weather"]}, list(range(5)), 0),
        ({"clear_tool_inputs": ["other"]}, [2, 3, 4], 2),
        ({"clear_tool_inputs": ["weather"]}, [2, 3, 4], 2),
        ({"clear_tool_inputs": True, "exclude_tools": None}, [2, 3, 4], 2),
    ],
)
async def test_what_an_edit_says_is_done(
    serve_script: Any, connect: Any, fields: Any, left: list[int], cleared: int
) -> None:
    served = await serve_script([say("Rain.")])
    # The trigger lies between the fifth call and the answer behind it.
    usual = {"trigger": {"type": "input_tokens", "value": 5 * WORDS - 50}}
    answer = await connect(served).ask(steps(5), CLEARS | usual | fields)
    messages = shown(served)
    assert [text for text in results(messages) if text != "cleared"] == [f"result{n}" for n in left]
    applied = answer.context_management.applied_edits
    assert [each.cleared_tool_uses for each in applied] == ([cleared] if cleared else [])
    inputs = [
        each["tool_calls"][0]["function"]["arguments"] for each in messages if "tool_calls" in each
    ]
    without = cleared if fields.get("clear_tool_inputs") in (True, ["weather"]) else 0
    assert inputs == ["{}"] * without + ['{"city": "Ulm"}'] * (5 - without)


async def test_what_was_cleared_stays_cleared_and_what_follows_is_spliced(
    serve_script: Any, connect: Any
) -> None:
    turns = 24
    served = await serve_script([call("weather", city="Ulm")] * turns)
    client, messages = connect(served), list[Any]([HELLO])
    edit = CLEARS | {"trigger": {"type": "input_tokens", "value": 1500}}
    prompts, cleared = [], []
    for number in range(turns):
        answer = await client.ask(messages, edit)
        prompts.append(results(shown(served)))
        applied = answer.context_management.applied_edits
        cleared.append(applied[0].cleared_tool_uses if applied else 0)
        result = {"type": "tool_result", "tool_use_id": answer.content[0].id}
        told = f"result{number}" + " rain" * (WORDS - 1)
        messages += [
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": [result | {"content": told}]},
        ]
    times = sum(now > before for before, now in pairwise(cleared))
    assert cleared == sorted(cleared) and times == 5, "7 results fit, and 3 are kept"
    assert max(len(each) - each.count("cleared") for each in prompts) <= 7, "1500 tokens hold them"
    # A history goes on with its tokens unless something in it has just been cleared.
    assert await counted(served) == {
        ("spliced", "unchanged"): turns - 1 - times,
        ("rendered", "changed"): times,
    }


@pytest.mark.parametrize("seed", range(20))
def test_an_edit_clears_at_each_answer_what_it_had_cleared_before(seed: int) -> None:
    chance = random.Random(seed)
    messages: list[Message] = [{"role": "user", "content": "?"}]
    for number in range(chance.randint(1, 40)):
        calls = [
            {"id": f"{number}-{n}", "function": {"name": chance.choice("ab"), "arguments": "{}"}}
            for n in range(chance.choice((1, 1, 2)))
        ]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": "x"} for c in calls]
    sizes = [chance.randint(1, 60) for _ in messages]
    edit = ClearToolUses(
        type="clear_tool_uses_20250919",
        keep=Uses(value=chance.randint(0, 4)),
        exclude_tools=chance.choice(([], ["a"])),
        clear_at_least=chance.choice((None, Tokens(value=100))),
        trigger=chance.choice((None, Uses(value=4))),
    )

    def cleared(length: int) -> tuple[set[int], list[Message]]:
        part, uses = messages[:length], tool_uses(messages[:length])
        savings = [sizes[use.result] for use in uses]
        growth = Growth(sizes[:length], savings, sizes[0], sum(sizes[:length]))
        numbers = uses_to_clear(edit, part, uses, growth, 300)
        return set(numbers), without_uses(part, [uses[number] for number in numbers], edit)

    lengths = [at for at, each in enumerate(messages) if each["role"] == "assistant"]
    before: tuple[set[int], list[Message]] = (set(), [])
    for length in [*lengths, len(messages)]:
        now = cleared(length)
        assert before[0] <= now[0]
        if before[0] == now[0]:
            assert now[1][: len(before[1])] == before[1], "the prompt goes on"
        before = now


@pytest.mark.parametrize("keep", [..., {"type": "thinking_turns", "value": 2}, "all"])
async def test_old_thinking_is_cleared(serve_script: Any, connect: Any, keep: Any) -> None:
    served = await serve_script([think(f"thought {n}", "Fine.") for n in range(4)])
    client, messages = connect(served), list[Any]([HELLO])
    edit = {"type": "clear_thinking_20251015"} | ({} if keep is ... else {"keep": keep})
    for number in range(4):
        answer = await client.ask(messages, edit)
        messages += [{"role": "assistant", "content": answer.content}, HELLO]
        kept = {"all": number}.get(
            keep if isinstance(keep, str) else "", 2 if keep is not ... else 1
        )
        told = [each.get("reasoning") for each in shown(served) if each["role"] == "assistant"]
        lost = max(0, number - kept)
        assert told == [None] * lost + [f"thought {n}" for n in range(lost, number)]
        applied = answer.context_management.applied_edits
        assert [each.cleared_thinking_turns for each in applied] == ([lost] if lost else [])
    spliced = (await counted(served)).get(("spliced", "unchanged"), 0)
    # Tokens that hold thinking are not continued once it is cleared.
    assert spliced == (3 if keep == "all" else 1 if keep is ... else 2)


@pytest.mark.parametrize("streams", [False, True])
async def test_a_long_conversation_is_compacted(
    serve_script: Any, connect: Any, streams: bool
) -> None:
    served = await serve_script([say("It rains."), say("Take a coat."), say("A green one.")])
    client, system = connect(served), "Be brief."
    edit = COMPACTS | {"trigger": {"type": "input_tokens", "value": 500}}
    messages = steps(3)
    answer = await client.ask(messages, edit, streams=streams, system=system)
    written, _ = served.engine.sessions
    assert written.turns[0][-1] == {"role": "user", "content": SUMMARISE}
    assert results(written.turns[0]) == ["result0", "result1", "result2"]
    assert (written.spec.tool_choice, len(written.spec.tools)) == ("none", 1)
    summary = {"role": "user", "content": f"{HEADING}\nIt rains."}
    assert shown(served) == [{"role": "system", "content": system}, summary]
    assert [block.type for block in answer.content] == ["compaction", "text"]
    assert answer.content[0].content == "It rains."
    assert answer.stop_reason == "end_turn"
    assert answer.context_management.applied_edits == []
    first, second = answer.usage.iterations
    assert (first.type, second.type) == ("compaction", "message")
    assert first.input_tokens > 3 * WORDS > 50 > second.input_tokens == answer.usage.input_tokens
    assert (first.output_tokens, second.output_tokens) == (2, 3)
    # The block stands for all before it.
    messages += [{"role": "assistant", "content": answer.content}, HELLO]
    answer = await client.ask(messages, edit, system=system)
    assert answer.content[0].text == "A green one."
    assert [each["content"] for each in shown(served)[2:]] == ["Take a coat.", "Hello"]
    assert await counted(served) == {
        ("rendered", "unknown"): 1,  # the calls are made up
        ("spliced", "unchanged"): 1,
    }


@pytest.mark.parametrize("streams", [False, True])
async def test_a_run_may_pause_behind_a_compaction(
    serve_script: Any, connect: Any, streams: bool
) -> None:
    served = await serve_script([say("It rains."), say("Take a coat.")])
    client = connect(served)
    edit = COMPACTS | {
        "trigger": {"type": "input_tokens", "value": 500},
        "pause_after_compaction": True,
        "instructions": "What is the weather?",
    }
    messages = steps(3)
    answer = await client.ask(messages, edit, streams=streams)
    assert shown(served)[-1]["content"] == "What is the weather?"
    assert [block.type for block in answer.content] == ["compaction"]
    assert answer.stop_reason == "compaction"
    assert [each.type for each in answer.usage.iterations] == ["compaction"]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (0, 0)
    messages.append({"role": "assistant", "content": answer.content})
    answer = await client.ask(messages, edit)
    assert shown(served) == [{"role": "user", "content": f"{HEADING}\nIt rains."}]
    assert not served.engine.sessions[-1].spec.prefill
    assert answer.content[0].text == "Take a coat."


async def test_a_summary_that_was_cut_replaces_nothing(serve_script: Any, connect: Any) -> None:
    served = await serve_script([say("one two three four five six"), say("Fine.")] * 2)
    client, messages = connect(served), steps(3)
    trigger = {"trigger": {"type": "input_tokens", "value": 500}}
    for pauses in (False, True):
        edit = COMPACTS | trigger | {"pause_after_compaction": pauses}
        answer = await client.ask(messages, edit, max_tokens=4)
        assert [block.type for block in answer.content] == ["compaction", "text"]
        assert answer.content[0].content is None
        assert results(shown(served)) == ["result0", "result1", "result2"]
        # The block comes back, and says nothing.
        content = answer.model_dump()["content"]
        messages += [{"role": "assistant", "content": content}, HELLO]
    assert all("compaction" not in str(each) for each in shown(served))


async def test_a_conversation_is_compacted_when_the_request_says_so(
    serve_script: Any, connect: Any
) -> None:
    served = await serve_script([say("It rains."), say("Take a coat.")])
    client = connect(served)
    messages = [*steps(1), {"role": "assistant", "content": "It rains."}]
    answer = await client.ask(messages, compaction={"type": "summarize"})
    assert (answer.content[0].content, answer.stop_reason) == ("It rains.", "compaction")
    assert shown(served)[-1]["content"] == SUMMARISE
    answer = await client.ask([{"role": "assistant", "content": answer.content}, HELLO])
    assert [each["content"] for each in shown(served)] == [f"{HEADING}\nIt rains.", "Hello"]
    with pytest.raises(anthropic.BadRequestError, match="cannot be combined"):
        await client.ask(messages, COMPACTS, compaction={"type": "summarize"})


async def test_tokens_are_counted_with_the_edits(serve_script: Any, connect: Any) -> None:
    served = await serve_script([])
    client = connect(served).own.beta.messages
    trigger = {"trigger": {"type": "input_tokens", "value": 500}}
    asked: Any = {"model": MODEL, "messages": steps(6), "tools": [WEATHER]}
    plain = await client.count_tokens(**asked)
    assert plain.context_management is None
    # Counting triggers no compaction.
    managed = {"edits": [CLEARS | trigger, COMPACTS | trigger]}
    counted = await client.count_tokens(**asked, context_management=managed)
    assert counted.context_management.original_input_tokens == plain.input_tokens
    assert counted.input_tokens < plain.input_tokens - 2 * WORDS
    thinking = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    counted = await client.count_tokens(**asked, context_management=thinking)
    assert counted.context_management.original_input_tokens == counted.input_tokens
    assert served.engine.sessions == []


async def test_what_no_window_holds_is_cleared(serve_script: Any, connect: Any) -> None:
    """By default from three quarters of the window on, which is 8,192 tokens here."""
    served = await serve_script([say("Rain.")] * 2)
    client = connect(served)
    answer = await client.ask(steps(30), CLEARS)
    assert answer.context_management.applied_edits == []
    answer = await client.ask(steps(60), CLEARS)
    assert answer.context_management.applied_edits[0].cleared_input_tokens > 20 * WORDS


@pytest.mark.parametrize(
    ("managed", "told"),
    [
        ([{"type": "shorten_2027"}], "'clear_tool_uses_20250919', 'clear_thinking_20251015'"),
        ([CLEARS | {"trigger": {"type": "words", "value": 1}}], "'input_tokens', 'tool_uses'"),
        ([CLEARS | {"keep": {"type": "tool_uses", "value": -1}}], "keep.value"),
        ([COMPACTS | {"trigger": {"type": "tool_uses", "value": 1}}], "trigger"),
        ([COMPACTS, COMPACTS], "one edit of each type"),
    ],
)
@pytest.mark.parametrize("stock", [False, True])
async def test_edits_that_are_not_ours_are_refused(
    serve_script: Any, connect: Any, managed: Any, told: str, stock: bool
) -> None:
    async def behind(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("vLLM's server would leave the edits out without a word")

    served = await serve_script([], vllm=VllmServer(behind, None) if stock else None)
    with pytest.raises(anthropic.BadRequestError, match="context_management") as refused:
        await connect(served).ask([HELLO], *managed)
    assert told in str(refused.value)


async def test_what_vllm_answers_may_clear_thinking(serve_script: Any, connect: Any) -> None:
    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse({"type": "message", "content": []})(scope, receive, send)

    served = await serve_script([], vllm=VllmServer(behind, None))
    keep = {"type": "clear_thinking_20251015", "keep": "all"}
    answer = await connect(served).ask([HELLO], keep, container="c_1")
    assert answer.content == []
    with pytest.raises(anthropic.BadRequestError, match="container"):
        await connect(served).ask([HELLO], keep, COMPACTS, container="c_1")
