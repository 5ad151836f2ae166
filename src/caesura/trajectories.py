"""Trajectories of sessions: who made each token, how histories branch, files and trainers.

async with Agent(trajectories=True) as agent, agent.session() as session:
    await session.run("What is 12 * 7?")
    write_jsonl("rollouts.jsonl", [await session.trajectory()])
"""

from caesura.runtime.sdk.episodes import Episode, Episodes, collect, collecting
from caesura.runtime.trajectories.adapters.atif import read_atif, to_atif, write_atif
from caesura.runtime.trajectories.adapters.sequences import to_skyrl, to_slime, to_trl, to_verl
from caesura.runtime.trajectories.adapters.trl import trl_reward, trl_rollouts, trl_tools
from caesura.runtime.trajectories.adapters.turns import to_rllm, to_verifiers
from caesura.runtime.trajectories.adapters.verifiers import fill_trace, tokens_from
from caesura.runtime.trajectories.files import read_jsonl, write_jsonl, write_parquet
from caesura.runtime.trajectories.served import fetch
from caesura.runtime.trajectories.trajectory import Branch, Rollout, Segment, Source, Trajectory
from caesura.runtime.trajectories.weights import update_weights, updating
from caesura.scheduler.session_log import WeightsSpan

__all__ = [
    "Branch",
    "Episode",
    "Episodes",
    "Rollout",
    "Segment",
    "Source",
    "Trajectory",
    "WeightsSpan",
    "collect",
    "collecting",
    "fetch",
    "fill_trace",
    "read_atif",
    "read_jsonl",
    "to_atif",
    "to_rllm",
    "to_skyrl",
    "to_slime",
    "to_trl",
    "to_verifiers",
    "to_verl",
    "tokens_from",
    "trl_reward",
    "trl_rollouts",
    "trl_tools",
    "update_weights",
    "updating",
    "write_atif",
    "write_jsonl",
    "write_parquet",
]
