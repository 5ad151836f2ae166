"""Make agent_runs.jsonl.gz: a small sample of recorded agent sessions (see SOURCE.md).

    python benchmarks/data/make_agent_runs.py SESSIONS.jsonl.gz

The input has one session per line: `{"source", "session", "turns": [{"ctx", "out", "pause_s",
"pause_kind"}, ...]}`. A session is cut where a person was waited for: what remains are
runs in which the model and its tools take turns. The sample is drawn with a fixed seed, so that
the same input gives the same bytes.
"""

import gzip
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RUNS = 400
MIN_TURNS = 3
MAX_TURNS = 40
MAX_TOKENS = 90_000
"""Longer contexts would have to be scaled down so far that nothing is left of what is decoded."""


def runs_of(turns: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Cut a session into runs whose context only grows and whose pauses are all a tool's."""
    run: list[dict[str, Any]] = []
    for turn in turns:
        if not turn["ctx"] or not turn["out"]:
            run = []
            continue
        if run and turn["ctx"] <= run[-1]["ctx"] + run[-1]["out"]:
            run = []  # the agent has compacted its context
        run.append(turn)
        if turn["pause_kind"] != "tool":
            yield run
            run = []


def fits(run: list[dict[str, Any]]) -> bool:
    return MIN_TURNS <= len(run) <= MAX_TURNS and run[-1]["ctx"] + run[-1]["out"] <= MAX_TOKENS


def row(turn: dict[str, Any]) -> list[Any]:
    """Tokens of context at the beginning of the turn, tokens decoded, seconds until the next."""
    pause = turn["pause_s"] if turn["pause_kind"] == "tool" else 0
    return [turn["ctx"], turn["out"], round(pause, 3)]


def main() -> None:
    """Read the input named on the command line and write the sample beside this file."""
    rng = random.Random(0)
    samples = []
    with gzip.open(sys.argv[1], "rt") as lines:
        for line in lines:
            session = json.loads(line)
            found = [run for run in runs_of(session["turns"]) if fits(run)]
            # At most two of a session, so that no long one outweighs the others.
            samples += [
                {"source": session["source"], "turns": [row(turn) for turn in run]}
                for run in rng.sample(found, min(2, len(found)))
            ]
    samples = rng.sample(samples, min(RUNS, len(samples)))
    text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in samples)
    target = Path(__file__).with_name("agent_runs.jsonl.gz")
    target.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(samples)} runs, {len(text)} bytes, compressed {target.stat().st_size}")


if __name__ == "__main__":
    main()
