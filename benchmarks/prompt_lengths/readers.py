"""Published prompts and outputs as rows: each reader takes the folder of a data set."""

import csv
import gzip
import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.scheduler.prompt_lengths.training import Row

TAIL_CHARACTERS = 4096
"""The end of a conversation that is the prompt of its next segment."""

MAX_SAMPLES = 3
"""The most outputs of one model for one prompt that are read."""

SOLUTIONS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set: its folder, its reader, what an output is, and whose it is."""

    folder: str
    read: Callable[[Path], Iterator[Row]]
    output: str
    unit: str = "tokens"


def coding_agents(folder: Path) -> Iterator[Row]:
    """Read every turn of mini-swe-agent's 500 sessions, in order of time."""
    for session in _lines(folder / "trajs_text_500.jsonl.gz"):
        said = ""
        for message in session["messages"]:
            if message["role"] == "assistant" and "completion_tokens" in message:
                tokens = int(message["completion_tokens"])
                yield Row(said, (tokens,), session["instance_id"], float(message["created"]))
            said = f"{said}\n{message['role']}: {message['content']}"[-TAIL_CHARACTERS:]


def _segments(name: str) -> Callable[[Path], Iterator[Row]]:
    """Return a reader of the segments of sessions, up to each call."""

    def read(folder: Path) -> Iterator[Row]:
        for session in _lines(folder / name):
            said = ""
            for segment in session["segments"]:
                said = (said + segment.get("prompt", ""))[-TAIL_CHARACTERS:]
                yield Row(said, (int(segment["completion_tokens"]),), session["id"])
                said = f"{said}\n{segment['completion']}\n{segment.get('api_token', '')}\n"

    return read


def first_segments(folder: Path) -> Iterator[Row]:
    """Read the segments of solutions up to their first call, as LAMPS predicts them."""
    for session in _lines(folder / "math_gsm8k.jsonl.gz"):
        first = session["segments"][0]
        yield Row(first["prompt"], (int(first["completion_tokens"]),))


def toolbench(folder: Path) -> Iterator[Row]:
    """Read ToolBench's evaluation queries with the words of the final answers."""
    with tarfile.open(folder / "toolbench_examples.tar.gz") as tar:
        for member in tar.getmembers():
            if "default_evalset/gpt-3.5-turbo_CoT/" not in member.name or not member.isfile():
                continue
            opened = tar.extractfile(member)
            assert opened is not None
            for answered in json.load(opened).values():
                final = _final_answer(answered["answer"].get("final_answer", ""))
                yield Row(answered["query"], (len(final.split()),))


def math_models(folder: Path) -> Iterator[Row]:
    """Read the words of four models' solutions of each problem of GSM8K's test set."""
    for row in _lines(folder / "example_model_solutions.jsonl.gz"):
        words = tuple(len(row[name]["solution"].split()) for name in SOLUTIONS)
        yield Row(row["question"], words)


def chat_deepseek(folder: Path) -> Iterator[Row]:
    """Read three samples of DeepSeek-V3 for each of 263 prompts, uncapped."""
    for row in _lines(folder / "deepseek-v3-0324_3samples_250prompts.jsonl.gz"):
        yield Row(row["prompt"], tuple(row["out_tokens_mistral"]))


def chat_models(folder: Path) -> Iterator[Row]:
    """Read samples of many models for the first 80 characters of prompts, parts by prompt."""
    samples: dict[tuple[str, str], list[int]] = defaultdict(list)
    with gzip.open(folder / "all_reports_output_lengths.csv.gz", "rt", newline="") as lines:
        for line in csv.DictReader(lines):
            if line["max_new_tokens"] in ("400", "512"):
                found = samples[line["model"], line["prompt_head80"]]
                if len(found) < MAX_SAMPLES:
                    found.append(int(line["out_tokens_mistral"]))
    for (model, prompt), tokens in samples.items():
        name = re.sub(r"\W+", "_", model)
        yield Row(f"model_{name} {prompt}", tuple(tokens), session=prompt)


SETS = {
    "coding-agents": DataSet("miniswe_gemini3_swebench", coding_agents, "a turn of an agent"),
    "airline": DataSet(
        "infercept_like_sessions", _segments("tools_tau_airline.jsonl.gz"), "a turn with a customer"
    ),
    "questions": DataSet(
        "infercept_like_sessions", _segments("qa_hotpot_react.jsonl.gz"), "a step of ReAct"
    ),
    "math-call": DataSet(
        "infercept_like_sessions", first_segments, "a solution up to its first call"
    ),
    "math-models": DataSet("gsm8k", math_models, "a solution, by 4 models", "words"),
    "toolbench": DataSet("toolbench", toolbench, "a final answer", "words"),
    "chat-deepseek": DataSet("oasst_model_eval", chat_deepseek, "an answer, 3 samples"),
    "chat-models": DataSet("oasst_model_eval", chat_models, "an answer, of many models, capped"),
}


def rows_of(name: str, data: Path) -> list[Row]:
    """Return the rows of a set; `data` is the folder that holds the sets' folders."""
    return list(SETS[name].read(data / SETS[name].folder))


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt") as lines:
        yield from map(json.loads, lines)


def _final_answer(text: str) -> str:
    """Return the answer within the JSON of ToolBench's last call, or the text itself."""
    try:
        return str(json.loads(text)["final_answer"])
    except (ValueError, KeyError, TypeError):
        return text


def prompt_sizes(data: Path) -> tuple[list[int], list[int]] | None:
    """Return tokens of prompts and of outputs of ShareGPT-o1, which has no texts, or None."""
    file = data / "pastfuture_sharegpt_o1" / "ShareGPT-o1.json.gz"
    if not file.exists():
        return None
    with gzip.open(file, "rt") as opened:
        rows = json.load(opened)
    return [row["prompt_tokens"] for row in rows], [row["completion_tokens"] for row in rows]
