"""Agents that ask an expert: drawn sessions of both models, and the machines that serve them."""

import random
from dataclasses import dataclass

from caesura.simulator.latency.machines import make_machine
from caesura.simulator.machine import Machine
from caesura.simulator.session import Segment, Session, Workload
from caesura.simulator.workload.conversations import REASONING_OUTPUT, tokens_at

EXPERT = "expert"
"""The tool under which agents ask the expert."""

SEARCH = "search"
SEARCH_SECONDS = 1.0
ASKING_SHARE = 0.7
"""The share of calls that ask the expert; the others search."""

MAX_ANSWER_TOKENS = 4000
"""Of an expert's output, whose lengths are those of a reasoning model."""

MAX_GIVEN_TOKENS = 400
"""What an agent is given of an answer: its end, without the reasoning."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Two models and the load on them: machines by spec, and agents per second.

    Models on one `device` take turns on it. `answers` is a factor on the expert's lengths, and
    `most_running` the requests that its engine runs at once. Without a `host`, KV that the agents'
    engine releases must be recomputed.
    """

    name: str
    agent: str
    expert: str
    rate: float
    device: str = ""
    answers: float = 1.0
    most_running: int = 256
    host: bool = True

    def machines(self) -> tuple[Machine, Machine]:
        """Return the machines of the agent's and of the expert's engine."""
        return make_machine(self.agent), make_machine(self.expert)


AGENT, EXPERTS = "llama-2-13b-a100-80g", "qwen3-32b-h100-tp2"
SETTINGS = (
    Setting("long answers", AGENT, EXPERTS, 0.9, host=False),
    Setting("long answers, host memory", AGENT, EXPERTS, 0.9),
    Setting("queued questions", AGENT, EXPERTS, 0.7, most_running=16, host=False),
    Setting("short answers", f"{AGENT}:kv=24000", EXPERTS, 0.5, answers=0.05, host=False),
    Setting(
        "one device",
        "llama-3.1-8b-h100:kv=40000",
        "llama-3.1-8b-h100:kv=160000",
        0.6,
        device="gpu0",
        host=False,
    ),
)
"""Models on devices of their own, and both on one device with parts of its memory."""


SPLIT_TOKENS = 60_000
"""The KV cache of one device that both models share in `split_settings`, in tokens."""

SHARES = (0.2, 0.35, 0.5, 0.65, 0.8)
"""The agents' shares of it."""


def split_settings() -> tuple[Setting, ...]:
    """Return two models on one device whose memory is tight, with parts of it by `SHARES`."""
    parts = [round(share * SPLIT_TOKENS) for share in SHARES]
    return tuple(
        Setting(
            f"split: {part} for the agents",
            f"llama-3.1-8b-h100:kv={part}",
            f"llama-3.1-8b-h100:kv={SPLIT_TOKENS - part}",
            0.6,
            device="gpu0",
            host=False,
        )
        for part in parts
    )


def draw(setting: Setting, seconds: float, seed: int) -> tuple[Workload, Workload]:
    """Return the agents' sessions and their questions; agents arrive as a Poisson process.

    Settings whose names agree up to a colon get the same sessions.
    """
    rate = setting.rate
    rng = random.Random(f"asking {setting.name.partition(':')[0]} {rate} {seconds} {seed}")
    agents: list[Session] = []
    questions: list[Session] = []
    at = rng.expovariate(rate)
    while at < seconds:
        agent, asked = _agent(rng, f"agent {len(agents)}", at, setting.answers)
        agents.append(agent)
        questions += asked
        at += rng.expovariate(rate)
    return (
        Workload("agents", tuple(agents), seed=seed),
        Workload("questions", tuple(questions), seed=seed),
    )


def _agent(
    rng: random.Random, key: str, arrival: float, answers: float
) -> tuple[Session, list[Session]]:
    """Return an agent of 2 to 5 calls, and its questions."""
    given, segments, questions = rng.randint(800, 2400), [], []
    for call in range(rng.randint(2, 5)):
        decoded, asks = rng.randint(40, 120), rng.random() < ASKING_SHARE
        tool, tool_seconds = (
            (EXPERT, 0.0) if asks else (SEARCH, rng.expovariate(1 / SEARCH_SECONDS))
        )
        segments.append(Segment(given, decoded, tool, tool_seconds))
        given = rng.randint(100, MAX_GIVEN_TOKENS)
        if asks:
            drawn = min(MAX_ANSWER_TOKENS, tokens_at(REASONING_OUTPUT, rng.random()))
            answer = max(1, round(answers * drawn))
            asked = Segment(rng.randint(100, 600), answer)
            name = f"{key} asks {call}"
            question = Session(name, "question", 0.0, (asked,), parent=key, parent_call=call)
            questions.append(question)
            given = min(answer, MAX_GIVEN_TOKENS)
    segments.append(Segment(given, rng.randint(80, 240)))
    return Session(key, "agent", arrival, tuple(segments)), questions
