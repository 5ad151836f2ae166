"""Trajectories of sessions: who made each token, how histories branch, and files of them.

async with Agent(trajectories=True) as agent, agent.session() as session:
    await session.run("What is 12 * 7?")
    write_jsonl("rollouts.jsonl", [await session.trajectory()])
"""

from caesura.runtime.trajectories.files import read_jsonl, write_jsonl, write_parquet
from caesura.runtime.trajectories.trajectory import Branch, Rollout, Segment, Source, Trajectory

__all__ = [
    "Branch",
    "Rollout",
    "Segment",
    "Source",
    "Trajectory",
    "read_jsonl",
    "write_jsonl",
    "write_parquet",
]
