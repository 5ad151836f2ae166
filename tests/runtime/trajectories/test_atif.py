"""Trajectories in ATIF: the package takes them, and they are read back as they were."""

import asyncio
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import atif
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura import UsageError
from caesura.runtime.trajectories.adapters.atif import from_atif
from caesura.trajectories import Branch, Segment, Trajectory, read_atif, to_atif, write_atif
from tests.runtime.trajectories.computed import ComputedEngine, Turn, check, turns_in
from tests.runtime.trajectories.histories import HISTORIES, Step, model, played


@settings(deadline=None, max_examples=60)
@given(HISTORIES, st.randoms(use_true_random=False), st.sampled_from([0.0, 0.4]))
def test_every_tree_is_read_back_and_every_turn_counts_once(
    steps: list[Step], rng: random.Random, rewrites: float
) -> None:
    engine = ComputedEngine(model, rng, rewrites)
    for session, trajectory in asyncio.run(played(engine, steps)):
        computed = Counter(each for each in engine.computed.get(session, []) if each[1])
        if not computed:
            continue
        paid = replace(trajectory, rewards={"exact": 0.5}, metadata={"task": "7"})
        told = json.loads(json.dumps(to_atif([paid], decode=str)))
        assert atif.Trajectory.model_validate(told).to_json_dict(exclude_none=False)
        assert from_atif(told) == [paid]
        turns = turns_of(told)
        assert turns >= computed
        forked = len({each.session for each in trajectory.branches}) > 1
        assert forked or turns == computed

        # Another reader's document has no words of ours: the tree follows from the ids.
        (again,) = from_atif(without_ours(told))
        check(again)
        assert turns_in(again, again.session) == turns


def turns_of(document: Any) -> "Counter[Turn]":
    """Return the turns of a session's documents that are no copies."""
    found: Counter[Turn] = Counter()
    for each in (document, *document.get("subagent_trajectories", [])):
        for step in each["steps"]:
            if step["source"] == "agent" and not step.get("is_copied_context"):
                told = step["metrics"]
                ids = tuple(told["prompt_token_ids"]), tuple(told["completion_token_ids"])
                found[ids] += 1
    return found


def without_ours(document: Any) -> Any:
    """Return a document with the steps of the branches in it, and nothing that only we read."""
    parts = [document, *document.get("subagent_trajectories", [])]
    steps = [step for part in parts for step in part["steps"]]
    steps = [each for each in steps if not each.get("is_copied_context")]
    kept = {"schema_version": "ATIF-v1.8", "session_id": "s", "agent": document["agent"]}
    return {**kept, "steps": [{**each, "step_id": at} for at, each in enumerate(steps, 1)]}


CALLED = (
    Segment(source="prompt", tokens=(1, 2)),
    Segment(source="sampled", tokens=(3, 4), stop_reason="call", started_at=50.0, cached_tokens=1),
    Segment(source="tool", tokens=(5,), seconds=8.0),
    Segment(source="sampled", tokens=(6, 7), stop_reason="stop"),
)
AGAIN = (
    Segment(source="user", tokens=(8,)),
    Segment(source="sampled", tokens=(9,), stop_reason="length"),
)


@pytest.fixture
def family() -> list[Trajectory]:
    """A session of two branches, a session below it, and one below that."""

    def of(name: str, segments: Any, **more: Any) -> Branch:
        return Branch(id=f"{name}/{len(more)}", session=name, model="m", segments=segments, **more)

    own = (of("s", CALLED), of("s", AGAIN, parent="s/0", branch_point=5))
    return [
        Trajectory(session="s", branches=own, rewards={"reward": 1.0}),
        Trajectory(session="a", branches=(of("a", AGAIN),), parent="s", rewards={"style": 0.5}),
        Trajectory(session="b", branches=(of("b", CALLED),), parent="a"),
        Trajectory(session="c", parent="s", metadata={"nothing": "sampled"}),
    ]


def test_sub_agents_stand_below_their_parents(family: list[Trajectory], tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_atif(path, family, decode=str)
    told = json.loads(path.read_text())
    made = atif.Trajectory.model_validate(told)
    assert made.to_json_dict() == told and made.schema_version == "ATIF-v1.8"
    below = made.subagent_trajectories or []
    assert [(each.trajectory_id, each.session_id) for each in below] == [
        ("s/0", "s"),
        ("a/0", "a"),
        ("c", "c"),
    ]
    assert [each.session_id for each in below[1].subagent_trajectories or ()] == ["b"]
    rewards = [(each.final_metrics or atif.FinalMetrics()).extra for each in (made, *below)]
    assert rewards == [{"rewards": {"reward": 1.0}}, None, {"rewards": {"style": 0.5}}, None]
    assert read_atif(path) == [family[0], family[1], family[2], family[3]]

    # The last branch is the document; what it shares with the other is a copy there.
    assert [each.message for each in made.steps] == ["[1, 2]", "[3, 4]", "[8]", "[9]"]
    assert [each.source for each in made.steps] == ["user", "agent", "user", "agent"]
    first = made.steps[1]
    assert first.observation is not None and first.metrics is not None
    assert [each.content for each in first.observation.results] == ["[5]"]
    assert first.metrics.prompt_token_ids == [1, 2] and first.metrics.cached_tokens == 1
    assert first.timestamp == "1970-01-01T00:00:50+00:00"
    copies = [[each.is_copied_context for each in one.steps] for one in (made, below[0])]
    assert copies == [[None] * 4, [None, True, None]]
    assert made.final_metrics is not None and made.final_metrics.total_completion_tokens == 3
    assert all(not each.message for each in atif.Trajectory(**to_atif(family)).steps)


def foreign(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    steps = [{"step_id": at, "message": "", **turn} for at, turn in enumerate(turns, 1)]
    about = {"schema_version": "ATIF-v1.6", "agent": {"name": "x", "version": "1"}}
    return {**about, "session_id": "s", "steps": steps, **more}


def turn(prompt: list[int] | None, sampled: list[int] | None, **more: Any) -> dict[str, Any]:
    metrics = {"prompt_token_ids": prompt, "completion_token_ids": sampled}
    return {"source": "agent", "metrics": metrics, **more}


def test_another_programs_document_is_a_tree_of_its_ids() -> None:
    call = {"tool_call_id": "1", "function_name": "look", "arguments": {}}
    seen = {"tool_calls": [call], "observation": {"results": [{"content": "x"}]}}
    child = foreign(turn([7], [8]), trajectory_id="child")
    document = foreign(
        {"source": "user"},
        turn([1, 2], [3], model_name="m", timestamp="1970-01-01T00:00:50Z", **seen),
        turn([1, 2, 3, 4], [5], llm_call_count=1),
        {"source": "agent", "llm_call_count": 0},
        {"source": "user"},
        turn([1, 2, 3, 4, 5, 6], [7]),
        turn([1, 9], [9]),
        subagent_trajectories=[child],
    )
    atif.Trajectory.model_validate(document)
    own, below = from_atif(document)
    assert (below.session, below.parent, below.rollout().ids) == ("child", "s", (7, 8))
    sources = [" ".join(part.source for part in each.segments) for each in own.branches]
    assert sources == ["prompt sampled", "tool sampled user sampled", "prompt sampled"]
    assert [each.model for each in own.branches] == ["m", None, None]
    assert own.branches[0].segments[1].stop_reason == "call"
    assert own.branches[0].segments[1].started_at == 50.0
    assert own.rollout("s/1").ids == (1, 2, 3, 4, 5, 6, 7) and own.branches[2].branch_point == 1


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ([], "no document in ATIF: its schema_version is None"),
        ({"schema_version": "x"}, "no document in ATIF: its schema_version is 'x'"),
        ({"schema_version": "ATIF-v1.8"}, "the session None in ATIF is broken: KeyError"),
        (foreign({"source": "agent"}), "step 1 of the session 's' lacks prompt_token_ids or"),
        (foreign(turn([1], None)), "step 1 of the session 's' lacks prompt_token_ids or"),
        (foreign(extra={"caesura": {}}), "the session 's' in ATIF is broken: "),
    ],
)
def test_what_cannot_be_read_is_told(document: Any, why: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=rf"x\.json: .*{why}"):
        read_atif(path)


def test_a_document_that_lost_tokens_is_told(family: list[Trajectory]) -> None:
    told = to_atif(family)
    told["steps"][-1]["metrics"]["completion_token_ids"] = []
    with pytest.raises(UsageError, match="steps of the branch 's/2' lack tokens"):
        from_atif(told)


def test_what_cannot_be_written_is_told(family: list[Trajectory], tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for trajectories, why in (
        ([], "give trajectories, got"),
        (family[3:], "nothing was sampled yet in the session 'c'"),
        ([family[0], family[2]], "got 'b' below 'a' behind s"),
        ([family[0], family[0]], "got 's' below None behind s"),
    ):
        with pytest.raises(UsageError, match=why):
            write_atif(path, trajectories)
    assert not path.exists()
    with pytest.raises(UsageError, match=r"none.x\.json: cannot be written"):
        write_atif(tmp_path / "none" / "x.json", family)
    with pytest.raises(UsageError, match=r"x\.json: cannot be read"):
        read_atif(path)
    path.write_text("{")
    with pytest.raises(UsageError, match=r"x\.json: this is no JSON"):
        read_atif(path)
