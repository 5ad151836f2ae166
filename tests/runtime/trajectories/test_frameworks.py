"""The trainers' own types take what the adapters give. Each test runs where its package is."""

import re
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.trajectories import (
    Branch,
    Segment,
    Trajectory,
    to_rllm,
    to_skyrl,
    to_slime,
    to_trl,
    to_verifiers,
    to_verl,
)
from tests.kit.trainers import needs

pytestmark = pytest.mark.filterwarnings("ignore")

ROOT = Path(__file__).parents[3]


def test_the_reference_names_the_packages_that_are_locked() -> None:
    lock = (ROOT / "requirements" / "trainers.txt").read_text()
    locked = dict(re.findall(r"^([\w-]+)==(\S+)$", lock, re.MULTILINE))
    page = (ROOT / "docs" / "reference" / "trajectories.md").read_text()
    told = dict(re.findall(r"`make trainers`, `([\w-]+)` (\S+) \|$", page, re.MULTILINE))
    wanted = re.findall(
        r"^(trl|verl|verifiers|rllm[\w-]*)$",
        (ROOT / "requirements" / "trainers.in").read_text(),
        re.MULTILINE,
    )
    assert told == {name: locked[name] for name in wanted} and len(told) == 4


@pytest.fixture
def trajectory() -> Trajectory:
    """A call, its result and the answer; then the answer again, behind a rewritten call."""
    first = (
        Segment(source="prompt", tokens=(11, 12)),
        Segment(source="sampled", tokens=(13, 14), stop_reason="call", started_at=5.0, seconds=2.0),
        Segment(source="tool", tokens=(15,), seconds=8.0),
        Segment(source="sampled", tokens=(16, 2), stop_reason="stop", seconds=1.0),
    )
    second = (
        Segment(source="template", tokens=(17,)),
        Segment(source="sampled", tokens=(18, 2), stop_reason="stop", seconds=1.0),
    )
    branches = (
        Branch(id="s/0", session="s", model="m", segments=first),
        Branch(id="s/1", session="s", model="m", parent="s/0", branch_point=3, segments=second),
    )
    return Trajectory(session="s", branches=branches)


def test_trl_trains_on_what_was_sampled(trajectory: Trajectory, tmp_path: Path) -> None:
    trl = needs("trl")
    datasets = needs("datasets")

    first = Trajectory(session="s", branches=trajectory.branches[:1])
    given: list[dict[str, Any]] = []

    def rollout_func(prompts: list[str], trainer: Any) -> dict[str, Any]:
        rows = [first, trajectory] * (len(prompts) // 2)
        given.append({**to_trl(rows), "paid": [1.0, 0.0] * (len(prompts) // 2)})
        return given[-1]

    def reward(completions: list[str], paid: list[float], **_: Any) -> list[float]:
        return paid

    config = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        num_generations=2,
        max_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        logging_steps=1,
        learning_rate=1e-3,
    )
    trainer = trl.GRPOTrainer(
        model=BUNDLED_MODEL,
        reward_funcs=[reward],
        rollout_func=rollout_func,
        args=config,
        train_dataset=datasets.Dataset.from_list([{"prompt": "Hi!"}] * 2),
    )
    before = trainer.model.model.embed_tokens.weight.detach().clone()
    trainer.train()
    told = trainer.state.log_history[0]
    assert told["completions/mean_length"] == 3.5  # four and three sampled tokens
    assert told["reward"] == 0.5
    assert not before.equal(trainer.model.model.embed_tokens.weight)
    assert len(given) == 1


def test_verl_pads_the_rows(trajectory: Trajectory) -> None:
    loops = needs("verl.experimental.agent_loop.agent_loop")
    for row in to_verl(trajectory, 0.5, every_branch=True):
        made = loops.AgentLoopOutput(**row).as_dict()
        assert made["prompts"].tolist() + made["responses"].tolist() == [
            *row["prompt_ids"],
            *row["response_ids"],
        ]
        assert made["response_mask"].tolist() == row["response_mask"]
        assert made["rm_scores"].tolist() == [0.0] * (len(row["response_ids"]) - 1) + [0.5]
        assert made["extra_fields"]["reward_extra_info"] == {}


def test_skyrl_finds_the_output_valid(trajectory: Trajectory) -> None:
    base = needs("skyrl.train.generators.base")
    checks = needs("skyrl.train.utils.trainer_utils")
    ids = [base.TrajectoryID("a", 0), base.TrajectoryID("a", 1)]
    plain = to_skyrl([trajectory] * 2, [1.0, 0.0], trajectory_ids=ids)
    checks.validate_generator_output(2, plain)
    steps = to_skyrl([trajectory] * 2, [1.0, 0.0], trajectory_ids=ids, every_branch=True)
    checks.validate_generator_output(2, steps, step_wise=True)
    assert set(steps) <= set(base.GeneratorOutput.__annotations__)


def test_slime_reads_the_samples(trajectory: Trajectory) -> None:
    types = needs("slime.utils.types")
    given = types.Sample(index=3, rollout_id=3, prompt="Hi!")
    for row in to_slime(trajectory, 1.0, every_branch=True):
        sample = types.Sample.from_dict({**given.to_dict(), **row})
        assert (sample.index, sample.rollout_id, sample.prompt) == (3, 3, "Hi!")
        assert sample.status is types.Sample.Status.COMPLETED and sample.reward == 1.0
        assert sample.effective_response_length == sum(row["loss_mask"])
        assert len(sample.tokens) >= sample.response_length == len(sample.loss_mask)


def test_verifiers_finds_the_branches(trajectory: Trajectory) -> None:
    graph = needs("verifiers.v1.graph")
    traces = needs("verifiers.v1.trace")
    nodes = [graph.MessageNode(**each) for each in to_verifiers(trajectory, decode=str)]
    made = traces.Trace.model_construct(nodes=nodes, calls=[], mm_token_type_id_map={})
    found = made.branches
    wanted = [trajectory.rollout(each.branch, own=False) for each in trajectory.rollouts()]
    assert [tuple(each.token_ids) for each in found] == [each.ids for each in wanted]
    assert [each.sampled_mask[2:] for each in found] == [
        [bool(bit) for bit in each.loss_mask] for each in wanted
    ]
    assert found[0].messages[1].content == "[13]"


def test_rllm_takes_the_traces(trajectory: Trajectory) -> None:
    models = needs("rllm_model_gateway.models")
    records = [models.TraceRecord(**each) for each in to_rllm(trajectory, decode=str)]
    assert [each.completion_token_ids for each in records] == [[13, 14], [16, 2], [18, 2]]
    assert [each.prompt_token_ids[-1] for each in records] == [12, 15, 17]
    assert (
        records[0].model_dump(include=set(to_rllm(trajectory)[0]))
        == to_rllm(trajectory, decode=str)[0]
    )
