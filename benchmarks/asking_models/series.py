"""All runs of the study, one after the other, each kept in a file; and what they showed."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.asking_models.knowledge import Knowledge, Lengths, Load, Oracle, Planned
from benchmarks.asking_models.workload import SETTINGS, Setting, draw, split_settings
from caesura.simulator.engine.coupled import Neighbour, simulate_together
from caesura.simulator.engine.run import Member
from caesura.simulator.policy import parse_policy

CHOICE_SEED = 1
"""Rates were chosen on it, and the plan's mean comes from it."""

REPORTED_SEEDS = (11, 12)

KNOWN = ("learned", "plan", "load", "rough", "lengths", "true")
"""What is known of an answer's time, from nothing but the mean of earlier answers to the truth."""

ROUGH_ERROR = 0.5
"""Of a rough predictor of lengths: the standard deviation of the logarithm of its factor."""

POLICIES: Mapping[str, tuple[str, ...]] = {
    "long answers": ("fcfs", "fcfs:ranking=caesura"),
    "long answers, host memory": ("fcfs",),
    "queued questions": ("fcfs",),
    "short answers": ("fcfs", "infercept"),
    "one device": ("fcfs",),
}
"""The policies of the agent's engine, by setting; the expert's is served by `fcfs`."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a setting, the policy of the agent's engine, a seed, and what is known."""

    setting: Setting
    policy: str
    seed: int
    known: str
    seconds: float

    def path(self, folder: Path) -> Path:
        """Return the file of the run."""
        told = json.dumps(asdict(self), sort_keys=True).encode()
        return folder / f"{hashlib.sha256(told).hexdigest()[:16]}.json"


def cells(seconds: float, seeds: tuple[int, ...] = REPORTED_SEEDS) -> Iterator[Cell]:
    """Yield the runs in the order in which they need each other, seed by seed."""
    for seed in seeds:
        for setting in SETTINGS:
            for policy in POLICIES[setting.name]:
                for known in KNOWN:
                    yield Cell(setting, policy, seed, known, seconds)


def split_cells(seconds: float) -> Iterator[Cell]:
    """Yield the runs of both models on one device, by the parts of its memory."""
    for seed in REPORTED_SEEDS:
        for setting in split_settings():
            for known in ("learned", "lengths"):
                yield Cell(setting, "fcfs", seed, known, seconds)


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Return what a run showed, from its file if it is there."""
    path = cell.path(folder)
    if path.exists():
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return read
    told = _run(cell, _knowledge(cell, folder))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told), encoding="utf-8")
    return told


def _knowledge(cell: Cell, folder: Path) -> Knowledge:
    if cell.known == "learned":
        return Knowledge()
    if cell.known in ("rough", "lengths"):
        error = ROUGH_ERROR if cell.known == "rough" else 0.0
        return Lengths(machine=cell.setting.machines()[1], log_error=error, seed=cell.seed)
    if cell.known == "true":
        earlier = run_cell(replace(cell, known="learned"), folder)["taken"]
        return Oracle(earlier={(key, call): seconds for key, call, seconds in earlier})
    plan = run_cell(replace(cell, known="learned", policy="fcfs", seed=CHOICE_SEED), folder)
    mean = fmean(seconds for _, _, seconds in plan["taken"])
    return Planned(mean_seconds=mean) if cell.known == "plan" else Load(mean_seconds=mean)


def _run(cell: Cell, knowledge: Knowledge) -> dict[str, Any]:
    setting = cell.setting
    agents, questions = draw(setting, cell.seconds, cell.seed)
    agent_machine, expert_machine = setting.machines()
    policy = replace(parse_policy(cell.policy), host=setting.host)
    of_expert = replace(parse_policy("fcfs"), most_running=setting.most_running)
    results = simulate_together(
        {
            "agent": Neighbour(Member(agents, agent_machine, policy), setting.device, knowledge),
            "expert": Neighbour(Member(questions, expert_machine, of_expert), setting.device),
        }
    )
    agent, expert = results["agent"], results["expert"]
    totals = agent.totals
    ends = [sum(end - sent for sent, _, end in one.segments) for one in agent.sessions]
    return {
        "sessions": len(ends),
        "own": ends,
        "whole": [one.latency for one in agent.sessions],
        "answers": [one.latency for one in expert.sessions],
        "expert_recomputed": expert.totals.recompute_tokens,
        "recomputed": totals.recompute_tokens,
        "computed": totals.prefill_tokens + totals.decode_tokens,
        "loaded_blocks": totals.loaded_blocks,
        "busy": totals.busy_seconds / totals.seconds,
        "used": totals.used_block_seconds / totals.total_block_seconds,
        "paused_idle": totals.waste_preserve / totals.total_block_seconds,
        "expert_used": expert.totals.used_block_seconds / expert.totals.total_block_seconds,
        "taken": [[key, call, seconds] for (key, call), seconds in knowledge.taken.items()],
        "error": knowledge.error(),
    }
