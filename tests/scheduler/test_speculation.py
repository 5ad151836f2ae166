"""Speculative decoding: drafts behind the end of a call leave no trace in what resumes."""

import random
from types import SimpleNamespace

import pytest

from caesura.scheduler.vllm.engine.compose import check_speculation
from tests.scheduler.clients import clients_come_and_go

from .invariants import check_rest, said_as_planned
from .steering import CALL, IN_EVERY_MODE, until_paused
from .world import World, make_scheduler


@IN_EVERY_MODE
@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("text_before", range(4))
def test_a_call_that_ends_among_accepted_drafts_resumes_at_its_last_token(
    asynchronous: bool, depth: int, prefix_caching: bool, text_before: int
) -> None:
    """Wherever the call ends among the drafts, all tokens but its last count as computed."""
    scheduler = make_scheduler(
        asynchronous=asynchronous, drafts=3, prefix_caching=prefix_caching, handling="preserve"
    )
    world = World(scheduler, depth)
    text = "w" * text_before + CALL
    session = world.session("a", range(40), text, " 3]", " is [calc(3*3) ->", " 9]", " done")
    for decoded in (text, " is [calc(3*3) ->"):
        until_paused(world, session)
        world.drain()
        assert bytes(session.delivered).decode().endswith(decoded)
        request = scheduler.requests["a"]
        assert scheduler.parts.served["a"].pause.frontier_tokens == request.num_tokens - 1
        world.answer(session)
        assert not request.spec_token_ids, "drafts from before the result"
    world.run()
    assert world.accepted_drafts
    said_as_planned(world)
    check_rest(world)


def test_a_method_that_was_not_tested_is_refused() -> None:
    with pytest.raises(ValueError, match=r"method 'eagle' is not supported.*Use method 'ngram'"):
        check_speculation(SimpleNamespace(speculative_config=SimpleNamespace(method="eagle")))


SEEDS = [
    *range(4),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 50)),
]


@pytest.mark.parametrize("seed", SEEDS)
@IN_EVERY_MODE
def test_random_clients_with_drafts(seed: int, asynchronous: bool, depth: int) -> None:
    rng = random.Random(seed)
    world = World(
        make_scheduler(
            blocks=rng.choice([34, 60]),
            max_num_seqs=rng.choice([2, 5, 16]),
            max_num_batched_tokens=rng.choice([32, 64, 512]),
            host_blocks=rng.choice([None, 30, 100]),
            asynchronous=asynchronous,
            prefix_caching=rng.random() < 0.8,
            handling=rng.choice(["caesura", "swap", "discard", "infercept", "preserve"]),
            drafts=rng.choice([1, 3, 5]),
        ),
        depth,
    )
    clients_come_and_go(world, rng, 120)
