"""The cases: workloads on machines, the policies that are compared, the loads, and the seeds."""

from dataclasses import dataclass
from pathlib import Path

RUNS = Path(__file__).parents[1] / "data" / "agent_runs.jsonl.gz"
GPTJ = "gptj-6b-a100-40g"

DEFAULT = "fcfs"
"""The served default: the handling `caesura` with the ranking `fcfs`."""
OTHERS = ("caesura:ranking=caesura", "lamps-infercept", "stock-offload")
"""The policies that the default must not be worse than."""
STOCK = "stock-offload"

LOADS = (0.5, 1.0, 1.5)
"""Shares of capacity."""
LOW_LOAD = 0.5
"""The highest load at which TTFT is compared with stock's."""

CHOICE_SEEDS = (1, 2, 3)
"""The seeds on which parameters and capacities were chosen."""
REPORT_SEEDS = (51, 52, 53)
"""The seeds of the tables; no parameter was chosen on them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload on a machine.

    Its capacity is the throughput of a closed loop of `clients` clients with the workload `loop`,
    whose tools take at most 2 s, so that few clients keep the engine busy. At capacity, a run has
    about `sessions` arrivals; at other loads their span is the same. `file`: the sessions come from
    `RUNS`. `names_parents`: sub-agents name their parents to the engine, where it can be told.
    """

    name: str
    workload: str
    loop: str
    clients: int
    sessions: int = 150
    machine: str = GPTJ
    file: bool = False
    names_parents: bool = False

    @property
    def data(self) -> Path | None:
        """Return the data file, or None."""
        return RUNS if self.file else None


# Recorded agents decode a fifth of their tokens and wait at most 120 s, or a run takes minutes.
AGENTS = "replay:longest=120,decode=0.2"
LOOP = "replay:longest=2,decode=0.2"

CASES = (
    Case("six tools", "mix", "mix:longest=2", 48, 100),
    Case("qa", "mix:tool=qa", "mix:tool=qa", 32, 120),
    Case("sub-agents", "subagents", "subagents:longest=2", 10, 30, names_parents=True),
    Case("reasoning", "reasoning:context=16000", "reasoning:context=16000", 24, 70),
    Case("agents, 8B", AGENTS, LOOP, 10, 24, "llama-3.1-8b-h100", True),
    Case("image", "mix:tool=image", "mix:tool=image,longest=2", 32, 80),
    Case("agents, 32B", AGENTS, LOOP, 8, 24, "qwen3-32b-h100-tp2", True),
    Case("chatbot", "mix:tool=chatbot", "mix:tool=chatbot,longest=2", 32, 80),
    Case("ve", "mix:tool=ve", "mix:tool=ve", 32, 80),
)
