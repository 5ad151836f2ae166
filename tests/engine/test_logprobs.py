"""What is recorded of sampled tokens is what the model says of them in one pass over all tokens.

That pass is one of transformers, in float32. `exactness.py` checks the same over swaps, drafts and
pressure, on the engine core.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
import torch
from openai import AsyncOpenAI
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend
from vllm.v1.structured_output.request import get_structured_output_key
from vllm.v1.structured_output.utils import choice_as_grammar

from caesura import Agent, Sampling
from caesura.intercept.calls.events import CallFinished, Event, TextDelta, TokenLogprob, TurnEnded
from caesura.runtime.launch import BUNDLED_MODEL
from caesura.runtime.trajectories.files import from_json
from caesura.scheduler.messages import CallRule, Message, SessionSpec
from caesura.scheduler.session_log import WeightsSpan
from caesura.scheduler.vllm import CaesuraAsyncScheduler
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools.calculator.tool import calculator
from caesura.trajectories import Trajectory
from tests.engine.asked import ASKED, FORCED, HELLO, PERSON, TOOLS
from tests.engine.exactness import HANDLINGS, loaded, passed, plan, talk_over_pauses
from tests.engine.known import Known

from .core import Core, streams_of_cpu

pytestmark = pytest.mark.engine

NEAR = 1e-4
HOT = Sampling(temperature=1.2, top_p=0.9, seed=7, max_tokens=60)
"""The log probabilities are those before temperature and bounds, as vLLM's are by default."""
SUM: list[Message] = [{"role": "user", "content": "What is 48 * 17?"}]
EGGS: list[Message] = [{"role": "user", "content": "Write a sentence about 12 boxes of 7 eggs."}]


async def conversation(
    engine: VllmEngine, spec: SessionSpec, messages: Sequence[Message], first: Sampling
) -> tuple[Known, list[Event]]:
    """Return what is known of a session whose calls are all answered, and its events."""
    log = Known()
    session = engine.open(spec, log)
    events: list[Event] = []
    sampling = first
    for _ in range(4):
        turn = [event async for event in session.turn(messages, sampling)]
        events += turn
        assert isinstance(turn[-1], TurnEnded)
        if turn[-1].reason != "call":
            break
        messages = [
            {"role": "tool", "tool_call_id": each.call_id, "name": each.name, "content": "84"}
            for each in turn
            if isinstance(each, CallFinished)
        ]
        sampling = replace(first, calls=CallRule(), text=None)
    await session.close()
    return log, events


CASES: dict[str, tuple[SessionSpec, list[Message], Sampling]] = {
    "text": (SessionSpec(), HELLO, HOT),
    "call": (SessionSpec([calculator.spec()]), SUM, replace(HOT, temperature=0)),
    "inline": (SessionSpec([calculator.spec()]), EGGS, replace(HOT, temperature=0)),
    "penalties": (SessionSpec(), HELLO, replace(HOT, frequency_penalty=1.5, min_tokens=20)),
}


@pytest.mark.parametrize("case", CASES)
async def test_each_token_has_that_of_one_pass(engine: VllmEngine, settled: Any, case: str) -> None:
    log, events = await conversation(engine, *CASES[case])
    reasons = [each.reason for each in events if isinstance(each, TurnEnded)]
    assert ("call" in reasons) == (case in ("call", "inline"))
    for turn, context, found in zip(log.turns, log.contexts(), log.logprobs, strict=True):
        assert found == pytest.approx(passed(BUNDLED_MODEL, context)[-len(found) :], abs=NEAR)
        assert len(found) == len(turn.sampled) > 0
    assert {name for each in log.versions for name in each} == {"default"}


GRAMMARS: dict[str, tuple[SessionSpec, list[Message], Sampling]] = {
    "thinking": (SessionSpec(), ASKED, FORCED),
    "schema": (SessionSpec(), HELLO, replace(HOT, max_tokens=200, text=PERSON)),
    "forced call": (
        SessionSpec(TOOLS),
        HELLO,
        replace(HOT, temperature=0, max_tokens=200, calls=CallRule(required=True)),
    ),
}


@pytest.mark.parametrize("case", GRAMMARS)
async def test_under_a_grammar_those_are_of_what_it_allows(
    engine: VllmEngine, settled: Any, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case == "thinking":
        monkeypatch.setattr(engine.language, "thinking", ("<think>",))
    spec, messages, sampling = GRAMMARS[case]
    log, _ = await conversation(engine, spec, messages, sampling)
    turn, (context, *_) = log.turns[0], log.contexts()
    params = engine.grammars.of_turn(spec.known_tools, sampling, "")
    assert params is not None
    if params.choice is not None:
        params = StructuredOutputsParams(grammar=choice_as_grammar(params.choice))
    backend = XgrammarBackend(
        vllm_config=engine.llm.vllm_config,
        tokenizer=engine.llm.get_tokenizer(),
        vocab_size=engine.llm.model_config.get_vocab_size(),
    )
    grammar = backend.compile_grammar(*get_structured_output_key(params))
    scores = allowed(grammar, backend, turn.sampled, context)
    assert log.logprobs[0] == pytest.approx(scores, abs=NEAR)
    whole = passed(BUNDLED_MODEL, context)[-len(scores) :]
    assert max(one - other for one, other in zip(scores, whole, strict=True)) > NEAR


def allowed(
    grammar: Any, backend: Any, sampled: Sequence[int], context: Sequence[int]
) -> list[float]:
    """Return the log probability of each sampled token among those that a grammar allows."""
    with torch.inference_mode():
        logits = loaded(BUNDLED_MODEL)(torch.tensor([context])).logits[0].float()
    mask = backend.allocate_token_bitmask(1)
    found = []
    for at, token in enumerate(sampled, len(context) - len(sampled)):
        grammar.fill_bitmask(mask, 0)
        bits = [(int(word) >> bit) & 1 for word in mask[0] for bit in range(32)]
        row = logits[at - 1]
        row = row.masked_fill(~torch.tensor(bits[: len(row)], dtype=torch.bool), -torch.inf)
        found.append(float(row.log_softmax(-1)[token]))
        assert grammar.accept_tokens("request", [token])
    return found


async def test_a_caller_sees_what_it_has_asked_for(engine: VllmEngine, settled: Any) -> None:
    """A log that records log probabilities changes none of those that are shown."""
    shown: list[list[TokenLogprob]] = []
    for log in (None, Known()):
        for asked in (None, 2):
            settings = replace(HOT, logprobs=asked)
            session = engine.open(SessionSpec(), log and Known())
            events = [event async for event in session.turn(HELLO, settings)]
            texts = [each for each in events if isinstance(each, TextDelta)]
            shown.append([token for each in texts for token in each.logprobs])
            await session.close()
    assert shown[0] == shown[2] == [] and len(shown[1]) == len(shown[3]) > 0
    for one, other in zip(shown[1], shown[3], strict=True):
        assert one.token == other.token and len(one.top) == len(other.top) == 2
        assert one.logprob == pytest.approx(other.logprob, abs=NEAR)


def check(trajectory: Trajectory) -> None:
    """Check the log probabilities of all branches of a trajectory."""
    for branch in trajectory.branches:
        rollout = trajectory.rollout(branch.id, own=False)
        assert rollout.logprobs is not None
        whole = passed(BUNDLED_MODEL, rollout.ids)[-len(rollout.completion_ids) :]
        for told, wanted, version, bit in zip(
            rollout.logprobs, whole, rollout.weights, rollout.loss_mask, strict=True
        ):
            assert told == pytest.approx(wanted if bit else 0.0, abs=NEAR)
            assert version == ("default" if bit else None)


async def test_an_agents_trajectory_has_them_over_forks_and_rewinds(
    engine: VllmEngine, settled: Any
) -> None:
    sampling = replace(HOT, temperature=0.5)
    agent = Agent(engine, [calculator], sampling=sampling, trajectories=True)
    async with agent.session() as session:
        await session.run("What is 48 * 17? Please be exact.")
        (fork,) = session.fork(1, sampling=replace(HOT, seed=8))
        async with fork:
            await fork.run("Go on.")
            check(await fork.trajectory())
        session.rewind()
        await session.run("Hello!")
        check(await session.trajectory())


async def test_a_servers_trajectories_have_them_and_its_answers_only_if_asked(
    engine: VllmEngine, recording: httpx.AsyncClient
) -> None:
    """Turns of Caesura's and of vLLM's own server, streamed and whole."""
    made = (await recording.post("/sessions", json={})).json()
    about: dict[str, Any] = {"base_url": made["base_url"], "api_key": "none", "max_retries": 0}
    asked: dict[str, Any] = {"model": engine.model, "temperature": 0.7, "max_tokens": 30}
    asked["messages"] = HELLO
    async with AsyncOpenAI(**about) as client:
        for fields in ({}, {"extra_body": {"server_tools": ["calculator"]}}):
            for tops in (None, 2):
                shown = {} if tops is None else {"logprobs": True, "top_logprobs": tops}
                answer = await client.chat.completions.create(**asked, **fields, **shown)
                told = answer.choices[0].logprobs
                assert (told is None) == (tops is None)
                if told is not None:
                    assert {len(each.top_logprobs) for each in told.content or ()} == {tops}
        parts = await client.chat.completions.create(**asked, stream=True)
        streamed = [part async for part in parts]
        assert all(each.logprobs is None for part in streamed for each in part.choices)
        completed = await client.completions.create(
            model=engine.model, prompt="Hello", max_tokens=8, logprobs=1
        )
        assert completed.choices[0].logprobs is not None
    path = f"/sessions/{made['id']}"
    (data,) = (await recording.get(f"{path}/trajectories")).json()["data"]
    traces = (await recording.get(f"{path}/traces")).json()
    trajectory = from_json(json.dumps(data))
    check(trajectory)
    assert len(trajectory.rollouts()) >= 2
    prompt, sampled, *_ = trajectory.branches[0].segments
    assert prompt.weights == () and sampled.weights == (
        WeightsSpan("default", len(sampled.tokens)),
    )
    assert all(len(each["logprobs"]) == len(each["completion_token_ids"]) for each in traces)


async def test_choices_with_server_tools_are_branches_that_share_the_prompt(
    engine: VllmEngine, recording: httpx.AsyncClient
) -> None:
    """Each has a run of its own, and says what a request with its seed says alone."""
    block = (await engine.command("facts"))["block_size"]
    asked: dict[str, Any] = {"model": engine.model, "messages": SUM, "max_tokens": 60}
    asked |= {"temperature": 1.5, "server_tools": ["calculator"]}
    await engine.llm.reset_prefix_cache(reset_connector=True)
    made = (await recording.post("/sessions", json={})).json()
    body = {**asked, "n": 3, "seed": 3}
    answer = (await recording.post(f"{made['base_url']}/chat/completions", json=body)).json()
    texts = [each["message"]["content"] for each in answer["choices"]]
    path = f"/sessions/{made['id']}/trajectories"
    (data,) = (await recording.get(path)).json()["data"]
    trajectory = from_json(json.dumps(data))
    check(trajectory)
    parts = [each for branch in trajectory.branches for each in branch.segments]
    cached = [each.cached_tokens for each in parts if each.source == "sampled"]
    whole = len(parts[0].tokens) // block * block
    assert cached[0] == 0 < whole and len(cached) > 3
    assert all(each is not None and each >= whole for each in cached[1:])
    for number, text in enumerate(texts):
        alone = {**asked, "seed": 3 + number}
        said = (await recording.post("/chat/completions", json=alone)).json()
        assert said["choices"][0]["message"]["content"] == text


def test_over_pauses_with_asynchronous_scheduling() -> None:
    with streams_of_cpu():
        core = Core(asynchronous=True, scheduler_cls=CaesuraAsyncScheduler, max_num_seqs=16)
        for handling in HANDLINGS:
            talks = {f"{handling}-{seed}": plan(core, seed) for seed in range(4)}
            talk_over_pauses(core, talks, handling)
        core.close()
