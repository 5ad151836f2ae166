"""Draw the curve of the training example from what its runs have measured.

    python examples/20_train.py --seed 1 --log docs/images/training/seed-1.json
    .venv/bin/python docs/images/draw_training.py

The picture has the reward of each step, and before and after it the greedy share of right answers.
"""

import json
from pathlib import Path

from benchmarks.charts import LINES, MARKS, name_lines, panels, to_png
from caesura.planning.show.gantt import PALETTE

RUNS = Path(__file__).with_name("training")


def draw(runs: list[dict]) -> bytes:
    """Return the picture of these runs."""
    figure, (steps, shares) = panels(2, 3.1, sharey=True)
    for run, line, mark, colour in zip(runs, LINES, MARKS, PALETTE, strict=False):
        looks = {"color": colour, "linestyle": line, "label": f"seed {run['seed']}"}
        rewards = [step["reward"] for step in run["steps"]]
        steps.plot(range(1, len(rewards) + 1), rewards, **looks)
        for place, kind in enumerate(("unknown", "known")):
            ends = [run[kind]["before"], run[kind]["after"]]
            shares.plot([2.5 * place, 2.5 * place + 1], ends, marker=mark, **looks)
    steps.set(xlabel="step", ylabel="mean reward", ylim=(0, 1.04), title="while it trains")
    shares.set(title="other numbers, greedily", ylabel="share answered right")
    shares.tick_params(labelleft=True)
    named = ("trained kinds,\nbefore", "after", "known kinds,\nbefore", "after")
    shares.set_xticks([0, 1, 2.5, 3.5], named)
    shares.margins(x=0.15)
    name_lines(figure, steps)
    return to_png(figure)


if __name__ == "__main__":
    kept = [json.loads(path.read_text()) for path in sorted(RUNS.glob("seed-*.json"))]
    RUNS.with_suffix(".png").write_bytes(draw(kept))
