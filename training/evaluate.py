"""Measures caesura-tiny on held-out scenarios and writes the results as JSON and Markdown.

A scenario counts as right only if every call is exactly the expected one and the final answer
contains every expected value. Greedy decoding in float32, the whole loop with tool results.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from heldout import Scenario, scenarios
from play import Played, Player
from real import definitions, with_real
from tasks.toolset import Tool
from tqdm import tqdm
from train import HELD_OUT, MODEL
from transformers import AutoModelForCausalLM, AutoTokenizer

START, END = "<!-- accuracy: start -->", "<!-- accuracy: end -->"


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Player:
    """Load the model directory."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    return Player(model, AutoTokenizer.from_pretrained(folder))


def measure(
    player: Player,
    count: int,
    size: int,
    tasks: list[str] | None = None,
    real: dict[str, Tool] | None = None,
) -> list[Played]:
    """Play ``count`` scenarios of every task, scenarios of similar length together.

    real: definitions of tools, by name, to list instead of the generated ones.
    """
    chosen = scenarios(HELD_OUT)
    todo: list[Scenario] = [
        with_real(item, real or {})
        for task, group in chosen.items()
        if not tasks or task in tasks
        for item in group[:count]
    ]
    todo.sort(key=lambda item: sum(len(piece.text) for piece in item.given))
    games: list[Played] = []
    for start in tqdm(range(0, len(todo), size), unit="batch"):
        games += player.play(todo[start : start + size])
    return games


def summary(games: list[Played]) -> dict[str, dict[str, float]]:
    """Return number, right ones and accuracy by task, and over all tasks."""
    groups: dict[str, list[bool]] = {}
    for game in games:
        groups.setdefault(game.scenario.asked.task, []).append(game.right)
    groups = {task: groups[task] for task in scenarios(0) if task in groups}
    groups["all"] = [game.right for game in games]
    return {
        task: {"n": len(marks), "right": sum(marks), "accuracy": round(sum(marks) / len(marks), 4)}
        for task, marks in groups.items()
    }


def failures(games: list[Played]) -> list[dict[str, Any]]:
    """Describe what went wrong, for those who want to improve the data."""
    return [
        {
            "task": game.scenario.asked.task,
            "user": game.scenario.asked.user,
            "expected": [call.key for call in game.scenario.asked.calls],
            "values": list(game.scenario.asked.values),
            "calls": [key for step in game.steps for key in step] + game.inline,
            "text": game.text,
        }
        for game in games
        if not game.right
    ]


def table(results: dict[str, dict[str, float]]) -> str:
    """Write the results as a Markdown table."""
    lines = ["| task | n | right | accuracy |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {t} | {r['n']} | {r['right']} | {r['accuracy']:.1%} |" for t, r in results.items()
    ]
    return "\n".join(lines)


def update_card(card: Path, text: str) -> None:
    """Replace the table between the two marks of the model card."""
    old = card.read_text(encoding="utf-8")
    head, rest = old.split(START, 1)
    card.write_text(f"{head}{START}\n{text}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=MODEL, help="model directory")
    parser.add_argument(
        "--count", type=int, default=HELD_OUT, help=f"scenarios per task, {HELD_OUT} at most"
    )
    parser.add_argument("--batch", type=int, default=50, help="scenarios played together")
    parser.add_argument("--task", nargs="*", help="only these tasks")
    parser.add_argument(
        "--real", action="store_true", help="list the built-in tools as they describe themselves"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads that PyTorch uses")
    parser.add_argument("--json", type=Path, help="file for the results and the failures")
    parser.add_argument("--card", action="store_true", help="write the table into the model card")
    return parser.parse_args()


def main() -> None:
    """Evaluate and report."""
    options = arguments()
    torch.set_num_threads(options.threads)
    real = definitions() if options.real else None
    games = measure(load(options.model), options.count, options.batch, options.task, real)
    results = summary(games)
    print(table(results))
    if options.json:
        report = {"results": results, "failures": failures(games)}
        options.json.write_text(
            json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    if options.card:
        update_card(options.model / "README.md", table(results))


if __name__ == "__main__":
    main()
