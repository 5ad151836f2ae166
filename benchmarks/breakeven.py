"""Draw which handling of a pause wastes least, by its length and the length of the context.

The prices are those that the scheduler reckons with (InferCept, equations 2 to 4), with a cost
model that `caesura calibrate` has measured, beside a batch of running requests, which a copy hides
behind and which a recomputation holds up. Left: with a link to host memory. Right: without.

With `--machines`, the maps of simulated machines are side by side. Above: with a link.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from benchmarks.evidence.tables import Table, add_option, tell
from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.pause_durations import Durations
from caesura.intercept.kv.views import ONE_GROUP, Groups, PausedKVView, StepView
from caesura.intercept.kv.waste import prices_for
from caesura.scheduler.calibration import Calibration
from caesura.simulator.engine.layout import lay_out
from caesura.simulator.latency.machines import MACHINES

NAMES = ("preserve", "discard", "swap")
COLOURS = ("#4477aa", "#ee6677", "#228833")
POINTS = 160
RUNNING = 16
RUNNING_CONTEXT = RUNNING * 1024
LONGEST = 16384
CONTEXTS = (256, 1024, 4096, LONGEST)
IMAGES = Path("docs/images")


@dataclass(frozen=True, slots=True)
class Priced:
    """What the prices of a map depend on; `link`: there is a link to host memory."""

    title: str
    cost: CostModel
    block_size: int
    groups: Groups = ONE_GROUP
    link: bool = True


def cheapest(priced: Priced, pause: float, context: int) -> int:
    """Return the index in `NAMES` of what wastes least block-seconds."""
    cost, block, groups = priced.cost, priced.block_size, priced.groups
    carried = cost.link_tokens(cost.step_seconds(RUNNING, RUNNING_CONTEXT))
    step = StepView(
        block_size=block,
        total_blocks=4096,
        free_blocks=0,
        host_free=4096,
        running_tokens=RUNNING,
        running_context=RUNNING_CONTEXT,
        link_blocks=carried * groups.growing // block,
        swap_pays=priced.link and cost.swap_pays,
        cost=cost,
        groups=groups,
    )
    blocks = max(1, int(groups.blocks(context, block)))
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
    moved = step.tokens(blocks)
    moving = cost.swap_seconds(moved, "out") + cost.swap_seconds(moved, "in")
    held = min(pause, moving) * blocks
    return int(np.argmin([price.preserve, price.discard, price.swap + held]))


def draw(maps: Sequence[Priced], columns: int, title: str, out: Path) -> None:
    """Write maps as an image, so many in a row."""
    pauses = np.geomspace(1e-4, 100, POINTS)
    contexts = np.geomspace(min(one.block_size for one in maps), LONGEST, POINTS)
    rows = len(maps) // columns
    size = (5 * columns, 4.2 * rows)
    figure, panels = plt.subplots(
        rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    axes = panels.ravel()
    for axis, one in zip(axes, maps, strict=True):
        grid = np.array([[cheapest(one, p, int(c)) for p in pauses] for c in contexts])
        axis.pcolormesh(pauses, contexts, grid, cmap=ListedColormap(COLOURS), vmin=0, vmax=2)
        axis.set(xscale="log", yscale="log", title=one.title)
    for axis in axes[-columns:]:
        axis.set_xlabel("pause [s]")
    for axis in axes[::columns]:
        axis.set_ylabel("context [tokens]")
    patches = [Patch(color=c, label=n) for c, n in zip(COLOURS, NAMES, strict=True)]
    axes[-1].legend(handles=patches, loc="lower right")
    figure.suptitle(title)
    figure.savefig(out, dpi=110)


def calibrated(calibration: Calibration) -> list[Priced]:
    """Return the maps of a calibration: with a link, and without."""
    cost, block = calibration.cost, calibration.block_size
    return [
        Priced("with a link to host memory", cost, block),
        Priced("without", cost, block, link=False),
    ]


def simulated(name: str, link: bool) -> Priced:
    """Return the map of a simulated machine."""
    machine = MACHINES[name]
    groups = lay_out(machine, LONGEST, caching=True).groups
    title = name if link else f"{name}, without a link"
    return Priced(title, machine.cost, machine.block_tokens, groups, link)


def first_pauses(priced: Priced, contexts: Sequence[int]) -> list[str]:
    """Return for each context the shortest pause at which preserving is not the cheapest."""
    pauses = [float(pause) for pause in np.geomspace(1e-4, 100, 241)]
    found = [next((p for p in pauses if cheapest(priced, p, one)), np.inf) for one in contexts]
    return ["never" if np.isinf(pause) else f"{pause:.2g}" for pause in found]


def table(maps: Sequence[Priced]) -> Table:
    """Return the shortest pauses, in seconds, at which something wastes less than preserving."""
    pauses = zip(*(first_pauses(one, CONTEXTS) for one in maps), strict=True)
    rows = [(f"{tokens:,}", *row) for tokens, row in zip(CONTEXTS, pauses, strict=True)]
    heads = (f"{'swap' if one.link else 'discard'} [s]: {one.title}" for one in maps)
    return Table.of(("context [tokens]", *heads), rows)


def main() -> None:
    """Parse the command line and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument(
        "calibration", type=Path, nargs="?", help="a file that `caesura calibrate` wrote"
    )
    chosen.add_argument("--machines", nargs="+", help="simulated machines")
    parser.add_argument("--out", type=Path, help="default: the image in docs/images")
    add_option(parser)
    args = parser.parse_args()
    if args.machines:
        maps = [simulated(name, link) for link in (True, False) for name in args.machines]
        pauses = table(maps)
        print(pauses.markdown())
        tell(args.tables, [pauses])
        title = "the handling that wastes least, by the cost models of simulated machines"
        draw(maps, len(args.machines), title, args.out or IMAGES / "break-even-layered.png")
        return
    found = Calibration.load(args.calibration)
    title = f"the handling that wastes least: {found.model}, {found.dtype}, {found.device}"
    draw(calibrated(found), 2, title, args.out or IMAGES / "break-even.png")


if __name__ == "__main__":
    main()
