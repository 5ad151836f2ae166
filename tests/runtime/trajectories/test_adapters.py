"""Trainers get what the engine computed: every sampled token counts, and none of them twice."""

import asyncio
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura import UsageError
from caesura.trajectories import (
    Branch,
    Segment,
    Trajectory,
    WeightsSpan,
    to_rllm,
    to_skyrl,
    to_slime,
    to_trl,
    to_verifiers,
    to_verl,
)
from tests.runtime.trajectories.computed import ComputedEngine
from tests.runtime.trajectories.histories import HISTORIES, Step, model, played


@settings(deadline=None, max_examples=100)
@given(HISTORIES, st.randoms(use_true_random=False), st.sampled_from([0.0, 0.4]))
def test_every_sampled_token_counts_once(
    steps: list[Step], rng: random.Random, rewrites: float
) -> None:
    engine = ComputedEngine(model, rng, rewrites)
    for session, trajectory in asyncio.run(played(engine, steps)):
        computed = [each for each in engine.computed.get(session, []) if each[1]]
        if not computed:
            continue
        # A turn of rLLM is a turn of the engine, with the context that it was sent.
        turns = to_rllm(trajectory)
        told = [(each["prompt_token_ids"], each["completion_token_ids"]) for each in turns]
        assert Counter((tuple(a), tuple(b)) for a, b in told) == Counter(computed)
        assert len({each["trace_id"] for each in turns}) == len(turns)

        counted = sum(len(sampled) for _, sampled in computed)
        rows = to_verl(trajectory, every_branch=True)
        assert sum(sum(row["response_mask"]) for row in rows) == counted
        contexts = {context + sampled for context, sampled in computed}
        assert {(*row["prompt_ids"], *row["response_ids"]) for row in rows} <= contexts
        samples = to_slime(trajectory, every_branch=True)
        assert [each["loss_mask"] for each in samples] == [row["response_mask"] for row in rows]
        both = to_skyrl([trajectory] * 2, [1, 2], trajectory_ids="ab", every_branch=True)
        assert both["loss_masks"] == [row["response_mask"] for row in rows] * 2
        check_nodes(trajectory)


def check_nodes(trajectory: Trajectory) -> None:
    """Check that the lines to leaves are the branches that the session made."""
    nodes = to_verifiers(trajectory)
    parents = {each["parent"] for each in nodes}
    leaves = {line(nodes, at) for at in range(len(nodes)) if at not in parents}
    whole = {
        (each.ids, (0,) * len(each.prompt_ids) + each.loss_mask)
        for each in (trajectory.rollout(one.branch, own=False) for one in trajectory.rollouts())
    }
    assert leaves <= whole
    # One that another goes on behind is no leaf.
    assert all(any(a == b[: len(a)] for b, _ in leaves) for a, _ in whole)
    own = [each for each in trajectory.branches if each.session == trajectory.session]
    if len(own) == len(trajectory.branches):  # nothing was forked
        made = sum(sum(part.loss_mask) for each in own for part in each.segments)
        assert sum(sum(each["mask"]) for each in nodes) == made


def line(nodes: list[dict[str, Any]], leaf: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids and the mask of a line, as verifiers joins them."""
    ids: list[int] = []
    mask: list[int] = []
    at: int | None = leaf
    while at is not None:
        ids = [*nodes[at]["token_ids"], *ids]
        mask = [*map(int, nodes[at]["mask"]), *mask]
        assert nodes[at]["parent"] is None or nodes[at]["parent"] < at
        at = nodes[at]["parent"]
    return tuple(ids), tuple(mask)


CALLED = (
    Segment(source="prompt", tokens=(1, 2)),
    Segment(source="sampled", tokens=(3, 4), stop_reason="call", started_at=50.0, seconds=2.0),
    Segment(source="tool", tokens=(5,), seconds=8.0),
    Segment(source="sampled", tokens=(6, 7), stop_reason="stop", started_at=60.0, seconds=1.0),
)
RETRIED = (
    Segment(source="template", tokens=(8,)),
    Segment(source="sampled", tokens=(9,), stop_reason="length", seconds=0.5),
)


@pytest.fixture
def called() -> Trajectory:
    """One branch: a call, its result and the answer."""
    return Trajectory(session="s", branches=(branch("s/0", CALLED),))


@pytest.fixture
def rewound() -> Trajectory:
    """A second branch, which leaves the first one within its call."""
    second = branch("s/1", RETRIED, parent="s/0", branch_point=3)
    return Trajectory(session="s", branches=(branch("s/0", CALLED), second))


def branch(name: str, segments: tuple[Segment, ...], **more: Any) -> Branch:
    return Branch(id=name, session=name[0], model="m", segments=segments, **more)


def test_trl_has_a_row_for_each_trajectory(called: Trajectory, rewound: Trajectory) -> None:
    assert to_trl(iter([called, rewound])) == {
        "prompt_ids": [[1, 2], [1, 2]],
        "completion_ids": [[3, 4, 5, 6, 7], [3, 8, 9]],
        "logprobs": None,
        "env_mask": [[1, 1, 0, 1, 1], [1, 0, 1]],
    }


def test_verl_has_seconds_of_turns_and_tools(called: Trajectory, rewound: Trajectory) -> None:
    (row,) = to_verl(called, 0.5)
    assert row == {
        "prompt_ids": [1, 2],
        "response_ids": [3, 4, 5, 6, 7],
        "response_mask": [1, 1, 0, 1, 1],
        "response_logprobs": None,
        "num_turns": 4,
        "metrics": {"generate_sequences": 3.0, "tool_calls": 8.0},
        "reward_score": 0.5,
        "extra_fields": {"reward_extra_info": {}},
    }
    first, second = to_verl(rewound, every_branch=True)
    assert "reward_score" not in first and first["response_ids"] == row["response_ids"]
    assert (second["response_ids"], second["response_mask"]) == ([3, 8, 9], [0, 0, 1])
    assert second["metrics"] == {"generate_sequences": 0.5, "tool_calls": 0}


def test_skyrl_pays_the_last_step_of_a_trajectory(called: Trajectory, rewound: Trajectory) -> None:
    made = to_skyrl([rewound, called], [1, 0.5], trajectory_ids=["a", "b"], every_branch=True)
    assert made["rewards"] == [0.0, 1.0, 0.5]
    assert made["is_last_step"] == [False, True, True]
    assert made["trajectory_ids"] == ["a", "a", "b"]
    assert made["loss_masks"] == [[1, 1, 0, 1, 1], [0, 0, 1], [1, 1, 0, 1, 1]]
    assert made["stop_reasons"] == ["stop", "length", "stop"]
    plain = to_skyrl([rewound, called], [1, 0.5])
    assert plain["rewards"] == [1.0, 0.5] and plain["loss_masks"] == [[1, 0, 1], [1, 1, 0, 1, 1]]
    assert plain["is_last_step"] is plain["trajectory_ids"] is plain["rollout_logprobs"] is None


def test_slime_has_the_whole_sequence(rewound: Trajectory) -> None:
    (row,) = to_slime(rewound, 1.0)
    assert (row["tokens"], row["response_length"]) == ([1, 2, 3, 8, 9], 3)
    assert (row["loss_mask"], row["status"], row["reward"]) == ([1, 0, 1], "truncated", 1.0)
    first, _ = to_slime(rewound, 1.0, every_branch=True)
    assert (first["status"], first["non_generation_time"]) == ("completed", 8.0)


@pytest.mark.parametrize(
    ("stop", "status", "finish"),
    [
        ("call", "truncated", "tool_calls"),
        (None, "aborted", "abort"),
        ("stop", "completed", "stop"),
    ],
)
def test_how_a_run_ended_is_told(stop: Any, status: str, finish: str) -> None:
    ended = Segment(source="sampled", tokens=(3,), stop_reason=stop)
    made = Trajectory(session="s", branches=(branch("s/0", (*CALLED[:1], ended)),))
    assert to_slime(made)[0]["status"] == status
    assert to_skyrl([made], [0])["stop_reasons"] == [finish]
    assert to_rllm(made)[0]["finish_reason"] == (finish if stop else None)


def test_rllm_has_a_trace_for_each_turn(rewound: Trajectory) -> None:
    first, second, third = to_rllm(rewound, decode=str)
    assert first == {
        "trace_id": "s/0/1",
        "session_id": "s",
        "model": "m",
        "prompt_token_ids": [1, 2],
        "response_message": {"role": "assistant", "content": "[3, 4]"},
        "completion_token_ids": [3, 4],
        "logprobs": None,
        "finish_reason": "tool_calls",
        "latency_ms": 2000.0,
        "token_counts": {"prompt": 2, "completion": 2},
        "timestamp": 50.0,
    }
    assert second["prompt_token_ids"] == [1, 2, 3, 4, 5]
    assert (third["trace_id"], third["prompt_token_ids"]) == ("s/1/1", [1, 2, 3, 8])
    assert to_rllm(rewound)[0]["response_message"] == {}


def test_verifiers_has_what_branches_share_once(rewound: Trajectory) -> None:
    nodes = to_verifiers(rewound, decode=str)
    assert [(each["parent"], each["token_ids"], each["sampled"]) for each in nodes] == [
        (None, [1, 2], False),
        (0, [3], True),
        (1, [4], True),
        (2, [5], False),
        (3, [6, 7], True),
        (1, [8], False),
        (5, [9], True),
    ]
    roles = ["user", "assistant", "assistant", "tool", "assistant", "user", "assistant"]
    assert [each["message"]["role"] for each in nodes] == roles
    assert nodes[1]["timestamp"] == 50.0 and "timestamp" not in nodes[0]
    assert nodes[6]["message"]["content"] == "[9]"


def test_verifiers_has_no_more_of_a_parent_than_a_fork_shares(rewound: Trajectory) -> None:
    own = branch("t/0", RETRIED, parent="s/0", branch_point=4)
    nodes = to_verifiers(Trajectory(session="t", branches=(*rewound.branches, own)))
    assert [each["token_ids"] for each in nodes] == [[1, 2], [3, 4], [8], [9]]
    assert [
        sum(row["loss_mask"])
        for row in to_slime(Trajectory(session="t", branches=(*rewound.branches, own)))
    ] == [3]


def test_a_sessions_reward_is_taken_where_none_is_given(
    called: Trajectory, rewound: Trajectory
) -> None:
    paid = replace(rewound, rewards={"exact": 0.25})
    best = replace(called, rewards={"exact": 0.25, "style": 1.0, "reward": 0.5})
    assert (called.reward, paid.reward, best.reward) == (None, 0.25, 0.5)
    assert [each["reward_score"] for each in to_verl(paid, every_branch=True)] == [0.25, 0.25]
    assert [to_verl(best, each)[0]["reward_score"] for each in (None, 0.0)] == [0.5, 0.0]
    assert [to_slime(best, each)[0]["reward"] for each in (None, 0.0)] == [0.5, 0.0]
    assert to_slime(called)[0]["reward"] is None and "reward_score" not in to_verl(called)[0]
    assert to_skyrl([paid, best])["rewards"] == [0.25, 0.5]
    assert to_skyrl([paid, best], [1, 0])["rewards"] == [1.0, 0.0]
    assert to_trl([paid, called, best])["reward"] == [0.25, None, 0.5]
    assert [each.rewards for each in paid.rollouts()] == [{"exact": 0.25}] * 2
    with pytest.raises(UsageError, match=r"'s' has no reward: give to_skyrl rewards"):
        to_skyrl([paid, called])
    several = replace(called, rewards={"style": 1.0, "exact": 0.25})
    for adapter in (to_verl, to_slime, lambda each: to_trl([each]), lambda each: to_skyrl([each])):
        with pytest.raises(UsageError, match=r"has the rewards exact, style, and none .* 'reward'"):
            adapter(several)
    assert to_verl(several, 1.0)[0]["reward_score"] == 1.0


def told(number: int, *logprobs: float, version: str | None = "3") -> Segment:
    """A segment of the first branch, with what is known of its tokens."""
    weights = (WeightsSpan(version, len(logprobs)),) if version is not None else ()
    return replace(CALLED[number], logprobs=logprobs, weights=weights)


@pytest.fixture
def known() -> Trajectory:
    """The first branch, whose log probabilities are known; the weights change in the first turn."""
    first = replace(told(1, -0.25, -0.75), weights=(WeightsSpan("3", 1), WeightsSpan("12", 1)))
    segments = (CALLED[0], first, CALLED[2], told(3, -0.5, -1.0, version="12"))
    return Trajectory(session="s", branches=(branch("s/0", segments),))


def test_log_probabilities_are_handed_on(known: Trajectory, called: Trajectory) -> None:
    wanted = [-0.25, -0.75, 0.0, -0.5, -1.0]
    assert known.rollout().logprobs == tuple(wanted) and called.rollout().logprobs is None
    assert to_trl([known])["logprobs"] == [wanted]
    assert to_trl([known, called])["logprobs"] is None
    assert to_skyrl([known], [1])["rollout_logprobs"] == [wanted]
    assert to_verl(known)[0]["response_logprobs"] == wanted
    assert to_slime(known)[0]["rollout_log_probs"] == wanted
    assert [each["logprobs"] for each in to_rllm(known)] == [[-0.25, -0.75], [-0.5, -1.0]]
    assert [each["logprobs"] for each in to_rllm(called)] == [None, None]
    nodes = to_verifiers(known)
    assert [each["logprobs"] for each in nodes] == [[], [-0.25, -0.75], [], [-0.5, -1.0]]


def test_a_branch_has_those_of_the_tokens_that_it_shares(known: Trajectory) -> None:
    retried = (RETRIED[0], replace(RETRIED[1], logprobs=(-2.0,)))
    cut = branch("s/1", retried, parent="s/0", branch_point=3)
    made = Trajectory(session="s", branches=(*known.branches, cut))
    assert made.rollout().logprobs == (-0.25, 0.0, -2.0)
    assert made.rollout().weights == ("3", None, None)
    nodes = to_verifiers(made)
    assert [each["logprobs"] for each in nodes[1:3]] == [[-0.25], [-0.75]]
    lost = replace(cut, segments=RETRIED)
    unknown = Trajectory(session="s", branches=(*known.branches, lost))
    assert unknown.rollout().logprobs is None and unknown.rollouts()[0].logprobs is not None


def test_versions_of_the_weights_are_handed_on(known: Trajectory, called: Trajectory) -> None:
    assert known.rollout().weights == ("3", "12", None, "12", "12")
    steps = {"min_global_steps": 3, "max_global_steps": 12}
    assert to_verl(known)[0]["extra_fields"] == steps
    assert to_verl(known, 1.0)[0]["extra_fields"] == {**steps, "reward_extra_info": {}}
    assert to_slime(known)[0]["weight_versions"] == ["3", "12"]
    assert to_slime(called)[0]["weight_versions"] == []
    named = replace(known.branches[0], segments=(CALLED[0], told(1, -0.5, -0.5, version="best")))
    made = Trajectory(session="s", branches=(named,))
    assert "extra_fields" not in to_verl(made)[0]
    assert to_slime(made)[0]["weight_versions"] == ["best"]


def test_what_is_wrong_is_told(called: Trajectory) -> None:
    empty = Trajectory(session="s")
    for adapter in (to_verl, to_slime, to_rllm, to_verifiers):
        with pytest.raises(UsageError, match="nothing was sampled yet in the session 's'"):
            adapter(empty)
    with pytest.raises(UsageError, match="nothing was sampled yet"):
        to_trl([called, empty])
    with pytest.raises(UsageError, match="to_trl takes a list of trajectories, got Trajectory"):
        to_trl(called)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="to_skyrl takes a list of trajectories, got NoneType"):
        to_skyrl([called, None], [1, 2])  # type: ignore[list-item]
    with pytest.raises(UsageError, match=r"rewards must have one item for each of the 1 traj.* 2"):
        to_skyrl([called], [1, 2])
    with pytest.raises(UsageError, match=r"trajectory_ids must have one item .* got 0"):
        to_skyrl([called], [1], trajectory_ids=[])
    with pytest.raises(UsageError, match="needs trajectory_ids"):
        to_skyrl([called], [1], every_branch=True)
    lost = branch("s/1", RETRIED, parent="s/0", branch_point=9)
    with pytest.raises(UsageError, match=r"'s/1' begins behind 9 tokens, .* 's/0' does not have"):
        to_verifiers(Trajectory(session="s", branches=(branch("s/0", CALLED), lost)))
