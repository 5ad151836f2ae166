"""Trajectories as sequences, in the shapes of TRL, verl, SkyRL and slime.

Each row is a branch from its first token. By default that is the last branch, and every sampled
token of it counts. With `every_branch` there is a row for each branch of the session, and each
sampled token counts in one of them: a branch's mask is 0 for what it shares with its parent.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.trajectories.trajectory import (
    Rollout,
    Segment,
    StopReason,
    Trajectory,
)

FINISH: Mapping[StopReason | None, str] = {
    "call": "tool_calls",
    "stop": "stop",
    "length": "length",
    None: "abort",
}
"""vLLM's and OpenAI's names of how a turn ended."""
SLIME_STATUS: Mapping[StopReason | None, str] = {
    "call": "truncated",
    "stop": "completed",
    "length": "truncated",
    None: "aborted",
}
"""The values of slime's `Sample.Status`. A run that ended at a call was cut by a limit."""


def to_trl(trajectories: Iterable[Trajectory]) -> dict[str, Any]:
    """Return what a `rollout_func` of TRL's `GRPOTrainer` returns, with a row per trajectory.

    `prompt_ids`, `completion_ids`, `logprobs` and `env_mask` hold one list for each trajectory;
    the mask is 1 for what the model sampled. `logprobs` is None if those of any row are not known.
    Where sessions have rewards, `reward` holds them, or None. It reaches TRL's reward functions, as
    further keys do that you add.

    Raises `UsageError` for what is no trajectory, for one without a sampled token, and for several
    rewards none of which is named `reward`.
    """
    given = _checked(trajectories, "to_trl")
    rows, paid = [each.rollout(own=False) for each in given], [each.reward for each in given]
    rewards = {} if all(each is None for each in paid) else {"reward": paid}
    return {
        "prompt_ids": [list(each.prompt_ids) for each in rows],
        "completion_ids": [list(each.completion_ids) for each in rows],
        "logprobs": _all_logprobs(rows),
        "env_mask": [list(each.loss_mask) for each in rows],
        **rewards,
    }


def to_verl(
    trajectory: Trajectory, reward: float | None = None, *, every_branch: bool = False
) -> list[dict[str, Any]]:
    """Return the keywords of verl's `AgentLoopOutput`, one dict for each row.

    `response_mask` is 1 for what the model sampled; `response_logprobs` is None if not known.
    `num_turns` counts the model's turns and what stands before and between them. The metrics
    `generate_sequences` and `tool_calls` are seconds of the row's turns and of its waits for
    tools; with `every_branch`, of what the branch has beside its parent. `reward`, or else the
    session's, is the `reward_score` of each row; where there is none, it is left to verl. Where all
    versions of the weights are whole numbers, `extra_fields` has the least and the greatest, as
    `min_global_steps` and `max_global_steps`.

    Raises `UsageError` for a trajectory without a sampled token, and for several rewards none of
    which is named `reward`.
    """
    reward = trajectory.reward if reward is None else reward
    made: list[dict[str, Any]] = []
    for each in _rows(trajectory, every_branch):
        segments = trajectory.segments(each.branch)
        timed = trajectory.branch(each.branch).segments if every_branch else segments
        metrics = {
            "generate_sequences": _seconds(timed, "sampled"),
            "tool_calls": _seconds(timed, "tool"),
        }
        row: dict[str, Any] = {
            "prompt_ids": list(each.prompt_ids),
            "response_ids": list(each.completion_ids),
            "response_mask": list(each.loss_mask),
            "response_logprobs": _listed(each.logprobs),
            "num_turns": _turns(segments),
            "metrics": metrics,
        }
        extra: dict[str, Any] = _steps(each)
        if reward is not None:
            # verl copies the score of the last output to the others, together with this field.
            row["reward_score"] = reward
            extra["reward_extra_info"] = {}
        made.append({**row, "extra_fields": extra} if extra else row)
    return made


def to_skyrl(
    trajectories: Iterable[Trajectory],
    rewards: Sequence[float] | None = None,
    *,
    trajectory_ids: Sequence[Any] | None = None,
    every_branch: bool = False,
) -> dict[str, Any]:
    """Return SkyRL's `GeneratorOutput`.

    `rewards` has a number for each trajectory; None: they are the sessions'. `trajectory_ids` are
    SkyRL's `TrajectoryID`s, one for each trajectory, as `GeneratorInput` has them. With
    `every_branch` the rows are the steps of SkyRL's step-wise training: the last of a trajectory
    has its reward, and the others have 0.
    `rollout_logprobs` is None if those of any row are not known.

    Raises `UsageError` for what is no trajectory and one without a sampled token, for another
    number of rewards or ids, for a session without a reward, and for `every_branch` without ids.
    """
    given = _checked(trajectories, "to_skyrl")
    rewards = [_paid(each) for each in given] if rewards is None else rewards
    _check_count("rewards", rewards, given)
    if trajectory_ids is not None:
        _check_count("trajectory_ids", trajectory_ids, given)
    elif every_branch:
        raise UsageError(
            "to_skyrl(..., every_branch=True) needs trajectory_ids, as SkyRL's trainer does: give"
            f" those of the GeneratorInput, got {trajectory_ids!r}"
        )
    rows: list[Rollout] = []
    paid: list[float] = []
    ids: list[Any] = []
    is_last: list[bool] = []
    for place, (trajectory, reward) in enumerate(zip(given, rewards, strict=True)):
        found = _rows(trajectory, every_branch)
        ends = [False] * (len(found) - 1) + [True]
        rows += found
        is_last += ends
        paid += [float(reward) if end else 0.0 for end in ends]
        ids += [] if trajectory_ids is None else [trajectory_ids[place]] * len(found)
    return {
        "prompt_token_ids": [list(each.prompt_ids) for each in rows],
        "response_ids": [list(each.completion_ids) for each in rows],
        "rewards": paid,
        "loss_masks": [list(each.loss_mask) for each in rows],
        "stop_reasons": [FINISH[each.stop_reason] for each in rows],
        "rollout_metrics": None,
        "rollout_logprobs": _all_logprobs(rows),
        "trajectory_ids": None if trajectory_ids is None else ids,
        "is_last_step": is_last if every_branch else None,
    }


def to_slime(
    trajectory: Trajectory, reward: float | None = None, *, every_branch: bool = False
) -> list[dict[str, Any]]:
    """Return fields of slime's `Sample`, one dict for each row.

    Each goes over those of the sample that slime's `generate` function was given:
    `Sample.from_dict({**sample.to_dict(), **row})`. `tokens` is the whole sequence, and `loss_mask`
    and `rollout_log_probs` are of its last `response_length` tokens; the latter is None if not
    known. `weight_versions` are those of the weights, in order. `status` is the value of a
    `Sample.Status`: `truncated` also for a run that a limit ended at a call, and `aborted` for a
    turn that was broken off. `non_generation_time` is the seconds of the row's waits for tools.
    `reward` is by default the session's.

    Raises `UsageError` for a trajectory without a sampled token, and for several rewards none of
    which is named `reward`.
    """
    reward, made = trajectory.reward if reward is None else reward, []
    for each in _rows(trajectory, every_branch):
        branch = trajectory.branch(each.branch)
        timed = branch.segments if every_branch else trajectory.segments(branch.id)
        made.append(
            {
                "tokens": list(each.ids),
                "response_length": len(each.completion_ids),
                "loss_mask": list(each.loss_mask),
                "rollout_log_probs": _listed(each.logprobs),
                "weight_versions": [name for name, _ in groupby(filter(None, each.weights))],
                "reward": reward,
                "status": SLIME_STATUS[each.stop_reason],
                "non_generation_time": _seconds(timed, "tool"),
            }
        )
    return made


def _rows(trajectory: Trajectory, every_branch: bool) -> tuple[Rollout, ...]:
    last = trajectory.rollout(own=False)  # raises where nothing was sampled
    return trajectory.rollouts() if every_branch else (last,)


def _paid(trajectory: Trajectory) -> float:
    if (reward := trajectory.reward) is None:
        raise UsageError(
            f"the session {trajectory.session!r} has no reward: give to_skyrl rewards, a number"
            " for each trajectory, or complete the session with one"
        )
    return reward


def _all_logprobs(rows: Sequence[Rollout]) -> list[list[float]] | None:
    known = [list(each.logprobs) for each in rows if each.logprobs is not None]
    return known if len(known) == len(rows) else None


def _listed(logprobs: Sequence[float] | None) -> list[float] | None:
    return None if logprobs is None else list(logprobs)


def _steps(made: Rollout) -> dict[str, Any]:
    """Return the steps between which verl says that a sequence was sampled, if they are known."""
    pairs = zip(made.weights, made.sources, strict=True)
    versions = {name or "" for name, source in pairs if source == "sampled"}
    if not all(map(str.isdecimal, versions)):
        return {}
    steps = [*map(int, versions)]
    return {"min_global_steps": min(steps), "max_global_steps": max(steps)}


def _turns(segments: Sequence[Segment]) -> int:
    runs = groupby(segments, key=lambda each: each.source == "sampled")
    return sum(len(list(run)) if is_sampled else 1 for is_sampled, run in runs)


def _seconds(segments: Iterable[Segment], source: str) -> float:
    return sum(each.seconds or 0.0 for each in segments if each.source == source)


def _checked(trajectories: Iterable[Trajectory], name: str) -> list[Trajectory]:
    given = list(trajectories) if isinstance(trajectories, Iterable) else []
    wrong = [each for each in given if not isinstance(each, Trajectory)]
    if wrong or not isinstance(trajectories, Iterable):
        got = type(wrong[0] if wrong else trajectories).__name__
        raise UsageError(f"{name} takes a list of trajectories, got {got}")
    return given


def _check_count(name: str, values: Sequence[Any], given: Sequence[Trajectory]) -> None:
    if len(values) != len(given):
        raise UsageError(
            f"{name} must have one item for each of the {len(given)} trajectories, got"
            f" {len(values)}"
        )
