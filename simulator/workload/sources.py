"""The workloads by name: from a spec's options to the function that draws sessions."""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from caesura.simulator.session import Segment, Session
from caesura.simulator.workload.conversations import chats, reasoning
from caesura.simulator.workload.draw import Draw, reshaped
from caesura.simulator.workload.options import Options
from caesura.simulator.workload.papers import (
    DISTRIBUTIONS,
    EXACT,
    INFERCEPT_GROUPS,
    INFERCEPT_TOOLS,
    Lengths,
    Mix,
    Requests,
    ToolBench,
    Uniform,
    read_lengths,
)
from caesura.simulator.workload.records import read_sessions
from caesura.simulator.workload.replay import Replay, read_runs
from caesura.simulator.workload.subagents import SubAgents

TOOLS = INFERCEPT_GROUPS | {name: (name,) for name in INFERCEPT_TOOLS}


@dataclass(frozen=True)
class Source:
    """One workload: a line about it, and the function that makes it of options and a data file.

    `file` describes the data file; it is empty if there is none. `clients` is the default number of
    clients; 0 means no closed loop. `requests` is the default number of sessions in a closed loop.
    """

    about: str
    make: Callable[[Options, Path | None], Draw]
    file: str = ""
    clients: int = 0
    requests: int = 500


class Recorded:
    """Returns recorded sessions in the order of their arrival, over and over."""

    def __init__(self, sessions: list[Session]) -> None:
        self._sessions = itertools.cycle(sessions)

    def __call__(self, _: random.Random) -> tuple[str, list[Segment]]:
        """Return the next session."""
        session = next(self._sessions)
        return session.kind, list(session.segments)


def recorded_sessions(options: Options, path: Path) -> list[Session]:
    """Return the sessions of a record file in the shape that the options define.

    Sessions whose first segment does not fit the context are left out.
    """
    shape = options.shape()
    scaled = [
        replace(session, segments=tuple(reshaped(session.segments, shape)))
        for session in read_sessions(path)
    ]
    fitting = [session for session in scaled if session.segments]
    if not fitting:
        raise options.error(f"no session begins within {shape.context} tokens: raise context=")
    return fitting


def _mix(default: str = "all", single: bool = False) -> Callable[[Options, Path | None], Draw]:
    def make(options: Options, _: Path | None) -> Draw:
        one, several = options.text("tool"), options.text("tools")
        if one and several:
            raise options.error("tool and tools mean the same; give only one")
        tools = options.several("tool" if one else "tools", TOOLS, default)
        return Mix(tools, options.shape(), options.switch("balanced"), single)

    return make


def _requests(name: str, uniform: Uniform | None) -> Callable[[Options, Path | None], Draw]:
    def make(options: Options, data: Path | None) -> Draw:
        text = options.text("most", "preset")
        most = None if text == "preset" else EXACT if text == "exact" else options.whole("most", 0)
        source: Uniform | list[Lengths] = uniform or read_lengths(_needed(options, data))
        return Requests(name, source, options.shape(), most)

    return make


def _toolbench(options: Options, _: Path | None) -> Draw:
    return ToolBench(options.shape())


def _chats(options: Options, _: Path | None) -> Draw:
    return chats(options.shape(), options.number("rounds", 1.0, 1.0))


def _reasoning(options: Options, _: Path | None) -> Draw:
    return reasoning(options.shape(), options.number("rounds", 1.0, 1.0))


def _subagents(options: Options, _: Path | None) -> Draw:
    fewest, most = options.whole("fewest", 2, 1), options.whole("most", 8, 1)
    return SubAgents(options.shape(), fewest, most)


def _replay(options: Options, data: Path | None) -> Draw:
    return Replay(read_runs(_needed(options, data), options.switch("people")), options.shape())


def _record(options: Options, data: Path | None) -> Draw:
    return Recorded(recorded_sessions(options, _needed(options, data)))


def _needed(options: Options, data: Path | None) -> Path:
    if data is None:
        raise options.error(f"it needs a data file (--data): {SOURCES[options.name].file}")
    return data


SOURCES: dict[str, Source] = {
    "mix": Source("InferCept's six tools (Table 1), equally likely", _mix()),
    "short": Source("InferCept's math, qa and ve", _mix("short")),
    "long": Source("InferCept's chatbot, image and tts", _mix("long")),
    "lamps-single": Source("InferCept's six tools, one call each (LAMPS)", _mix(single=True)),
    "lamps-multi": Source("InferCept's six tools (LAMPS' multi-API)", _mix()),
    "toolbench": Source("ToolBench as LAMPS has it (Table 2)", _toolbench),
    **{
        f"pastfuture-{name}": Source(
            f"Past-Future's Distribution-{name[1]}, single requests",
            _requests(name, uniform),
            clients=60,
        )
        for name, uniform in DISTRIBUTIONS.items()
    },
    "sharegpt-o1": Source(
        "ShareGPT-o1's lengths (Past-Future), single requests",
        _requests("o1", None),
        "ShareGPT-o1.json of WuSiYu/lightllm-ae",
        clients=60,
        requests=1900,
    ),
    "ssjf": Source("chats of LMSYS-Chat-1M's mean lengths (SSJF)", _chats),
    "reasoning": Source("chats with a reasoning model (DeepSeek-R1 in ServeGen)", _reasoning),
    "subagents": Source("agents that start several sub-agents at once", _subagents),
    "replay": Source(
        "recorded runs of agents",
        _replay,
        "JSON lines of sessions with turns, such as benchmarks/data/agent_runs.jsonl.gz",
    ),
    "record": Source(
        "what a served engine has recorded", _record, "what `caesura serve --records` has written"
    ),
}
"""All workloads by name."""
