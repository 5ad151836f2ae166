"""The four applications of SamuLLM's experiments, with drawn prompts and output lengths.

The paper's data sets are known by the numbers in its text only: prompts of an ensemble have 5 to
127 tokens (21 on average), those of a routing 9 to 577 (310). Documents have 3 chunks at the
median; the longest of 100 has 60, and the longest of 300 has 201.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.papers.samullm_plans.models import (
    ENSEMBLE,
    ROUTED,
    SHAPES,
    base_of,
    longest,
    model_of,
)
from caesura.planning.application.application import Application, Task
from caesura.planning.application.requests import Request
from caesura.planning.costs.lengths import Lengths, draw_lengths, make_lengths

SUMMARY = "vicuna-13b-v1.5"
JUDGE = "Llama-2-70b-chat-hf"
CHUNK = 2048
INSTRUCTIONS = 150
"""Tokens of the judge's instructions, assumed."""

ROUTED_LIMIT = 4096
ROUTED_MEAN = 199
ROUTED_MOST = 1585
"""The limit of a routing's outputs, and their real lengths: the mean and the longest."""


@dataclass(frozen=True, slots=True)
class Work:
    """An application, its requests, and how the lengths of a plan and of a run are drawn."""

    application: Application
    requests: tuple[Request, ...]
    planned: Callable[[int], dict[str, int]]
    real: Callable[[int], dict[str, int]]


def ensemble(count: int, limit: int, seed: int = 1) -> Work:
    """Return 9 models that answer `count` prompts with up to `limit` tokens (section 5.1)."""
    return _work("ensemble", ENSEMBLE, _ensemble(count, limit, seed))


def routing(scale: float = 1.0, seed: int = 1) -> Work:
    """Return 5 models that share the prompts of Table 1 (section 5.2)."""
    generator = np.random.default_rng(seed)
    requests = [
        Request(f"{model}/{row}", model, model, int(prompt), ROUTED_LIMIT)
        for model, count in ROUTED.items()
        for row, prompt in enumerate(_prompts(generator, round(scale * count), 9, 577, 310))
    ]
    work = _work("routing", tuple(ROUTED), requests)
    return Work(work.application, work.requests, work.planned, _routed_lengths(work))


def chain(documents: int, evaluations: int, limit: int, seed: int = 1) -> Work:
    """Return summaries of documents chunk by chunk, and their evaluations (section 5.3)."""
    return _work("chain", (SUMMARY, JUDGE), _chain(documents, evaluations, limit, seed))


def mixed(
    documents: int, count: int, limit: int, evaluations: int = 4, summary_limit: int = 900
) -> Work:
    """Return a chain summary and an ensemble as one application (section 5.4).

    Two applications that both use vicuna have an engine of it each, as in the paper.
    """
    requests = [*_chain(documents, evaluations, summary_limit, 1), *_ensemble(count, limit, 2)]
    renamed = [
        replace(one, model=f"{SUMMARY} (summaries)") if one.task == "summary" else one
        for one in requests
    ]
    return _work("mixed", (f"{SUMMARY} (summaries)", JUDGE, *ENSEMBLE), renamed)


def _ensemble(count: int, limit: int, seed: int) -> list[Request]:
    prompts = _prompts(np.random.default_rng(seed), count, 5, 127, 21)
    return [
        Request(f"{model}/{row}", model, model, int(prompt), limit)
        for model in ENSEMBLE
        for row, prompt in enumerate(prompts)
    ]


def _chain(documents: int, evaluations: int, limit: int, seed: int) -> list[Request]:
    requests: list[Request] = []
    last = []
    for row, chunks in enumerate(chunk_counts(documents, seed)):
        previous = ""
        for item in range(chunks):
            key = f"summary/{row}/0/{item}"
            needs = (previous,) if previous else ()
            requests.append(Request(key, "summary", SUMMARY, CHUNK, limit, needs))
            previous = key
        last.append(previous)
    for row, key in enumerate(last):
        for sample in range(evaluations):
            name = f"judge/{row}/{sample}"
            requests.append(Request(name, "judge", JUDGE, INSTRUCTIONS, limit, (key,)))
    return requests


def chunk_counts(documents: int, seed: int) -> list[int]:
    """Return the chunks of each document: log-normal with the median 3, and one longest document.

    The longest has 60 chunks up to 100 documents, and 201 from 300 on, as in the paper.
    """
    generator = np.random.default_rng(seed)
    longest_one = round(float(np.interp(documents, (100, 300), (60, 201))))
    drawn = np.exp(generator.normal(np.log(3), 0.8, documents - 1))
    return [longest_one, *(int(min(longest_one, max(1, round(each)))) for each in drawn)]


def _prompts(
    generator: np.random.Generator, count: int, low: int, high: int, mean: float
) -> Sequence[int]:
    """Return the tokens of prompts: beta-distributed from `low` to `high`, with this mean."""
    share = (mean - low) / (high - low)
    drawn = generator.beta(2 * share, 2 * (1 - share), count)
    return [int(each) for each in np.round(low + (high - low) * drawn)]


def _work(name: str, models: Sequence[str], requests: Sequence[Request]) -> Work:
    """Return the application whose tasks need what their requests need."""
    tasks: dict[str, Task] = {}
    task_of = {one.key: one.task for one in requests}
    needs: dict[str, set[str]] = {}
    for one in requests:
        found = {task_of[key] for key in one.needs} - {one.task}
        needs.setdefault(one.task, set()).update(found)
    for one in requests:
        if one.task not in tasks:
            tasks[one.task] = Task(one.task, one.model, "", needs=tuple(sorted(needs[one.task])))
    made = tuple(model_of(model) for model in models)
    application = Application(name, made, tuple(tasks.values()))
    sources = {model: _lengths(model) for model in models}
    most = {model: longest(model) for model in models}

    def draw(seed: int) -> dict[str, int]:
        return draw_lengths(requests, sources, most, np.random.default_rng(seed))

    return Work(application, tuple(requests), draw, draw)


def _lengths(model: str) -> Lengths:
    """Return the lengths that the authors measured on requests of No Robots."""
    name = base_of(model)
    return make_lengths(f"samullm:{SHAPES[name].lengths or name}")


def _routed_lengths(work: Work) -> Callable[[int], dict[str, int]]:
    """Return the draws of a routing's real lengths: log-normal, cut at the longest.

    The paper names their mean and range, which differ from what the plan expects (No Robots).
    """

    def draw(seed: int) -> dict[str, int]:
        generator = np.random.default_rng(seed)
        sigma = 0.8
        mu = np.log(ROUTED_MEAN) - sigma**2 / 2
        drawn = np.exp(generator.normal(mu, sigma, len(work.requests)))
        tokens = np.clip(np.round(drawn), 3, ROUTED_MOST).astype(int).tolist()
        return {one.key: each for one, each in zip(work.requests, tokens, strict=True)}

    return draw
