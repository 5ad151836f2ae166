"""Draw which handling of a pause wastes least, by its length and the length of the context.

The prices are those that the scheduler reckons with (InferCept, equations 2 to 4), with a cost
model that `caesura calibrate` has measured, beside a batch of running requests, which a copy hides
behind and which a recomputation holds up. Left: with a link to host memory. Right: without.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from caesura.intercept.kv.pause_durations import Durations
from caesura.intercept.kv.views import PausedKVView, StepView
from caesura.intercept.kv.waste import prices_for
from caesura.scheduler.calibration import Calibration

NAMES = ("preserve", "discard", "swap")
COLOURS = ("#4477aa", "#ee6677", "#228833")
POINTS = 160
RUNNING = 16
RUNNING_CONTEXT = RUNNING * 1024


def cheapest(calibration: Calibration, link: bool, pause: float, context: int) -> int:
    """Return the index in `NAMES` of what wastes least block-seconds."""
    cost, block = calibration.cost, calibration.block_size
    step = StepView(
        block_size=block,
        total_blocks=4096,
        free_blocks=0,
        host_free=4096,
        running_tokens=RUNNING,
        running_context=RUNNING_CONTEXT,
        link_blocks=cost.link_tokens(cost.step_seconds(RUNNING, RUNNING_CONTEXT)) // block,
        swap_pays=link and cost.swap_pays,
        cost=cost,
    )
    blocks = max(1, context // block)
    paused = PausedKVView(
        key="",
        tool=None,
        durations=Durations(1.0),
        elapsed=0.0,
        remaining=pause,
        context_tokens=context,
        resident=blocks,
        free_to_release=0,
        uncopied=blocks,
        hosted=0,
        missing=0,
    )
    price = prices_for(paused, step, pause)
    # What a swap cannot free before the tool is back is held all the same.
    moving = cost.swap_seconds(context, "out") + cost.swap_seconds(context, "in")
    held = min(pause, moving) * blocks
    return int(np.argmin([price.preserve, price.discard, price.swap + held]))


def draw(calibration: Calibration, out: Path) -> None:
    """Write the map as an image."""
    pauses = np.geomspace(1e-4, 100, POINTS)
    contexts = np.geomspace(calibration.block_size, 16384, POINTS)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for axis, link in zip(axes, (True, False), strict=True):
        grid = np.array(
            [[cheapest(calibration, link, p, int(c)) for p in pauses] for c in contexts]
        )
        axis.pcolormesh(pauses, contexts, grid, cmap=ListedColormap(COLOURS), vmin=0, vmax=2)
        axis.set(xscale="log", yscale="log", xlabel="pause [s]")
        axis.set_title("with a link to host memory" if link else "without")
    axes[0].set_ylabel("context [tokens]")
    patches = [Patch(color=c, label=n) for c, n in zip(COLOURS, NAMES, strict=True)]
    axes[1].legend(handles=patches, loc="lower right")
    figure.suptitle(
        f"the handling that wastes least: {calibration.model}, {calibration.dtype}, "
        f"{calibration.device}"
    )
    figure.savefig(out, dpi=110)


def main() -> None:
    """Parse the command line and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("calibration", type=Path, help="a file that `caesura calibrate` wrote")
    parser.add_argument("--out", type=Path, default=Path("docs/images/break-even.png"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    draw(Calibration.load(args.calibration), args.out)


if __name__ == "__main__":
    main()
