"""Over any pause, greedy output is what the model says to the concatenated tokens from scratch.

Sessions whose plans are computed from scratch, and the tests that every kind of engine passes: a
test file imports them beside a fixture `core` of its own.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from vllm.v1.request import RequestStatus

from tests.engine.core import Core

PAUSES = 3
HANDLINGS = ["preserve", "discard", "discard-and-evict"]


@dataclass
class Talk:
    """A session's plan: what it will say between results, computed from scratch beforehand."""

    prompt: list[int]
    results: list[list[int]]
    said: list[list[int]] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)


def plan(core: Core, seed: int) -> Talk:
    """Choose a token to stop at from what the model will say; write down all it should say."""
    rng = random.Random(seed)
    talk = Talk(
        [rng.randrange(8, 1000) for _ in range(rng.randint(20, 150))],
        [[rng.randrange(8, 1000) for _ in range(rng.randint(1, 90))] for _ in range(PAUSES)],
    )
    context = list(talk.prompt)
    for result in talk.results:
        ahead = core.say(context, 24)
        at = next(i for i in range(8, 24) if ahead[i] not in ahead[:i])
        talk.said.append(ahead[: at + 1])
        talk.stops.append(ahead[at])
        context += ahead[: at + 1] + result
    talk.said.append(core.say(context, 20))
    return talk


def begin(core: Core, talks: dict[str, Talk]) -> None:
    """All sessions send their prompts, and want the log probabilities of what is sampled."""
    for name, talk in talks.items():
        core.add(name, talk.prompt, 100, talk.stops[0], resumable=True, logprobs=0)


def said_as_planned(core: Core, talks: dict[str, Talk], turn: int) -> None:
    for name, talk in talks.items():
        assert core.said[name] == talk.said[turn], f"{name}, turn {turn}"
        check_logprobs(core, name, talk, turn)


def check_logprobs(core: Core, name: str, talk: Talk, turn: int) -> None:
    """Check that each sampled token has the log probability of one pass over all tokens."""
    context = list(talk.prompt)
    for said, result in zip(talk.said[:turn], talk.results, strict=False):
        context += said + result
    said = talk.said[turn]
    wanted = passed(core.config.model_config.model, (*context, *said))[len(context) - 1 :]
    scores = core.scores[name]
    found = [each[token] for each, token in zip(scores, said, strict=True)]
    assert found == pytest.approx(wanted, abs=1e-4), f"{name}, turn {turn}"


@cache
def passed(model: str, tokens: tuple[int, ...]) -> list[float]:
    """Return the log probability of each token but the first, by one pass of transformers."""
    with torch.inference_mode():
        logits = loaded(model)(torch.tensor([tokens])).logits[0, :-1]
    scores = logits.float().log_softmax(-1)
    return [float(row[token]) for row, token in zip(scores, tokens[1:], strict=True)]


@cache
def loaded(model: str) -> Any:
    """Return a model of transformers in float32."""
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()


def answer(core: Core, talks: dict[str, Talk], turn: int) -> None:
    """All tools return: re-send the last token, append the result."""
    last = turn + 1 == PAUSES
    for name, talk in talks.items():
        core.add(
            name,
            [talk.said[turn][-1], *talk.results[turn]],
            20 if last else 100,
            None if last else talk.stops[turn + 1],
            resumable=True,
            logprobs=0,
        )


def talk_over_pauses(core: Core, talks: dict[str, Talk], handling: str) -> None:
    """Run all sessions to their end; in each pause their KV is kept, dropped, or lost."""
    core.scheduler.reset_prefix_cache()
    begin(core, talks)
    for turn in range(PAUSES):
        core.run(talks)
        said_as_planned(core, talks, turn)
        if handling != "preserve":
            for name in talks:
                core.drop_kv(name)
        if handling == "discard-and-evict":
            assert core.scheduler.reset_prefix_cache()
        answer(core, talks, turn)
    core.run(talks)
    said_as_planned(core, talks, PAUSES)
    assert core.scheduler.requests == {}


@pytest.mark.parametrize("handling", HANDLINGS)
def test_eight_sessions_at_once(core: Core, handling: str) -> None:
    talks = {f"{handling}-{seed}": plan(core, seed) for seed in range(8)}
    talk_over_pauses(core, talks, handling)
    for name in talks:
        resume = core.reports[name]["resume"]
        assert resume["handling"] == ("preserve" if handling == "preserve" else "discard")
        if handling == "preserve":
            assert resume["cached_tokens"] == resume["context_tokens"]
        if handling == "discard-and-evict":
            assert resume["cached_tokens"] == 0


def test_control_a_lost_token_would_be_noticed(core: Core) -> None:
    """The test above can fail: a result that misses the re-sent last token changes the rest."""
    talk = plan(core, 99)
    core.add("lossy", talk.prompt, 100, talk.stops[0], resumable=True)
    core.run(["lossy"])
    core.add("lossy", talk.results[0], 100, talk.stops[1], resumable=True)
    core.run(["lossy"])
    assert core.said["lossy"] != talk.said[1]
    core.scheduler.finish_requests("lossy", RequestStatus.FINISHED_ABORTED)


def test_under_pressure(core: Core) -> None:
    """Sessions and other requests in a pool too small for all of them, answers unchanged."""
    talks = {f"pressed-{seed}": plan(core, seed) for seed in range(100, 106)}
    core.scheduler.reset_prefix_cache()
    pool = core.scheduler.kv_cache_manager.block_pool
    taken = pool.get_new_blocks(pool.get_num_free_blocks() - 24)
    core.allowed_losses = len(taken)
    handlings: set[str] = set()
    try:
        begin(core, talks)
        for turn in range(PAUSES):
            core.run(talks)
            handlings |= {report["resume"]["handling"] for report in resumed(core, talks)}
            said_as_planned(core, talks, turn)
            answer(core, talks, turn)
        core.run(talks)
        said_as_planned(core, talks, PAUSES)
        assert "discard" in handlings, "there was no pressure"
    finally:
        pool.free_blocks(taken)
        core.allowed_losses = 0


def resumed(core: Core, names: Iterable[str]) -> list[dict[str, Any]]:
    return [core.reports[name] for name in names if core.reports[name].get("resume")]


POOL = 30


def make_core(
    prefix_caching: bool,
    budget: int,
    host_gib: float,
    link_gb_per_second: float | None = None,
    parallel: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Core:
    limit = {} if link_gb_per_second is None else {"link_gb_per_second": link_gb_per_second}
    return Core(
        enable_prefix_caching=prefix_caching,
        max_num_batched_tokens=budget,
        max_num_seqs=16,
        kv_transfer_config={
            "kv_connector": "CaesuraConnector",
            "kv_connector_module_path": "caesura.scheduler.vllm",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"host_gib": host_gib, **limit},
        },
        additional_config={"caesura": settings},
        **(parallel or {}),
    )


def talk_under_pressure(core: Core, talks: dict[str, Talk], rng: random.Random) -> list[str]:
    """Run all sessions to their end in a small pool; return how each resume was handled."""
    core.scheduler.reset_prefix_cache()
    pool = core.scheduler.kv_cache_manager.block_pool
    taken = pool.get_new_blocks(pool.get_num_free_blocks() - POOL)
    core.allowed_losses = len(taken)
    handlings = []
    try:
        begin(core, talks)
        for turn in range(PAUSES):
            core.run(talks)
            said_as_planned(core, talks, turn)
            for name in talks:
                resume = core.reports[name].get("resume")
                handlings += [resume["handling"]] if resume else []
            core.idle(rng.randint(0, 12))
            answer(core, talks, turn)
        core.run(talks)
        said_as_planned(core, talks, PAUSES)
        handlings += [core.reports[name]["resume"]["handling"] for name in talks]
    finally:
        pool.free_blocks(taken)
        core.allowed_losses = 0
    return handlings
