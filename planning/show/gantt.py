"""Which model holds which device when, of a plan and of its run, drawn as SVG without scripts."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from caesura.planning.plan import Placement, Plan
from caesura.planning.search.devices import Slots, assign, places_left

Kind = Literal["loading", "running", "lost"]

PALETTE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#000000",
    "#8c6d31",
)
"""Okabe and Ito's colours, which colour-blind people can tell apart. A brown replaces their yellow,
which is hard to see on white."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A model on a device from `begin` to `end`, in seconds of the run.

    While it is `loading` it answers no request; a bar is `lost` if its engine ended by itself.
    Bars of a plan know how many replicas the model has, and the devices of each.
    """

    device: int
    model: str
    begin: float
    end: float
    kind: Kind = "running"
    text: str = ""
    replicas: int = 0
    tensor_parallel: int = 0


def _no_time(placement: Placement) -> float:
    return 0.0


def plan_bars(
    plan: Plan,
    load_seconds: Callable[[Placement], float] = _no_time,
    loaded: Mapping[Placement, Slots] | None = None,
) -> list[Bar]:
    """Return the bars of a plan, with devices assigned as a run assigns them.

    A model whose placement stays on its devices over several stages is one bar. Models that share
    devices are all loaded when the time of each has passed. What is `loaded` when the plan begins
    goes on where it is.
    """
    now = dict(loaded or {})
    left: dict[Placement, Slots] = {}
    began = {_Engine(one, slot): (0.0, 0.0) for one, slots in now.items() for slot in slots}
    bars: list[Bar] = []
    at = 0.0
    for stage in plan.stages:
        before, now = now, assign(stage.placements, now, plan.devices, asleep=left)
        left = places_left(before, now, left)
        placed = {_Engine(one, slot) for one, slots in now.items() for slot in slots}
        for gone in sorted(began.keys() - placed):
            bars += gone.bars(*began.pop(gone), at)
        new = sorted(placed - began.keys())
        for one in new:
            together = {each.placement for each in new if each.shares_with(one)}
            began[one] = at, at + sum(map(load_seconds, together))
        at += stage.seconds
    for one, (begin, ready) in began.items():
        bars += one.bars(begin, ready, at)
    return sorted(bars, key=lambda bar: (bar.device, bar.begin))


@dataclass(frozen=True, slots=True, order=True)
class _Engine:
    """One replica on its devices. Two are equal if one can go on as the other."""

    placement: Placement = field(compare=False)
    devices: tuple[int, ...]
    model: str = field(init=False)
    kv_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", self.placement.model)
        object.__setattr__(self, "kv_bytes", self.placement.kv_bytes)

    def shares_with(self, other: "_Engine") -> bool:
        """Return whether both are of one placement, or share devices."""
        same = self.placement == other.placement
        return same or self.placement.shares == other.placement.shares != ""

    def bars(self, begin: float, loaded: float, end: float) -> Iterator[Bar]:
        """Yield its bars on each of its devices: loading, then running."""
        loaded = min(end, loaded)
        parallel = self.placement.replicas, self.placement.tensor_parallel
        text = f"tensor parallel {self.placement.tensor_parallel}"
        for device in self.devices:
            if loaded > begin:
                yield Bar(device, self.model, begin, loaded, "loading", text, *parallel)
            if end > loaded:
                yield Bar(device, self.model, loaded, end, "running", text, *parallel)


def run_bars(events: Iterable[Mapping[str, Any]]) -> list[Bar]:
    """Return the bars of the last run in the events of a run's journal."""
    bars: list[Bar] = []
    open_: dict[str, tuple[Mapping[str, Any], Kind]] = {}
    last = 0.0

    def close(replica: str, end: float, kind: Kind | None = None) -> None:
        event, held = open_.pop(replica)
        for device in event["devices"]:
            bars.append(Bar(device, event["model"], event["at"], end, kind or held, replica))

    for event in events:
        name, replica = event.get("event"), str(event.get("replica", ""))
        if name == "started":
            bars, open_, last = [], {}, 0.0
            continue
        last = max(last, float(event.get("at", 0.0)))
        if replica in open_ and name in ("loaded", "not loaded", "evicted", "lost"):
            close(replica, last, "lost" if name == "lost" else None)
        if name in ("loading", "loaded"):
            open_[replica] = event, "loading" if name == "loading" else "running"
    for replica in list(open_):
        close(replica, last)
    return sorted(bars, key=lambda bar: (bar.device, bar.begin))


WIDTH = 960
MARGIN_LEFT, MARGIN_RIGHT = 84, 24
LANE, GAP, TITLE, AXIS, LEGEND = 30, 6, 34, 34, 30
"""Heights in pixels: of a device's lane, between lanes, of a title, an axis and the legend."""
MIN_LABEL_PIXELS_PER_CHARACTER = 7.5
MAX_TICKS = 10

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; }
  .soft { fill: #656d76; }
  .lane { fill: #f3f4f6; }
  .tick { stroke: #d0d7de; }
  .inside { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .soft { fill: #9198a1; }
    .lane { fill: #21262d; }
    .tick { stroke: #3d444d; }
    .paper { fill: #0d1117; }
  }
  .paper { fill: #ffffff; }
"""


@dataclass(frozen=True, slots=True)
class Chart:
    """A panel: a title, and the bars of its devices."""

    title: str
    bars: Sequence[Bar]


def to_svg(charts: Sequence[Chart], devices: int) -> str:
    """Return the charts one below the other, with one scale of seconds and one legend."""
    models = list(dict.fromkeys(bar.model for chart in charts for bar in chart.bars))
    colours = {model: PALETTE[n % len(PALETTE)] for n, model in enumerate(models)}
    seconds = max((bar.end for chart in charts for bar in chart.bars), default=0.0) or 1.0
    panel = TITLE + devices * (LANE + GAP) + AXIS
    height = panel * len(charts) + LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' width="{WIDTH}" height="{height}">',
        "<defs><pattern id='loading' width='8' height='8' patternUnits='userSpaceOnUse'"
        " patternTransform='rotate(45)'><rect width='4' height='8' fill='#ffffff'"
        " fill-opacity='0.45'/></pattern></defs>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
    ]
    for number, chart in enumerate(charts):
        parts += _panel(chart, devices, seconds, colours, number * panel)
    parts += _legend(colours, panel * len(charts))
    return "\n".join([*parts, "</svg>"]) + "\n"


def to_html(charts: Sequence[Chart], devices: int, title: str, notes: Sequence[str] = ()) -> str:
    """Return a page that holds the charts, with notes below them."""
    shown = "".join(f"<p>{escape(note)}</p>\n" for note in notes)
    return (
        f"<!doctype html>\n<html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>\n"
        "<meta name='color-scheme' content='light dark'>\n"
        "<body style='margin: 2rem; font: 14px system-ui, sans-serif'>\n"
        f"<h1>{escape(title)}</h1>\n{to_svg(charts, devices)}{shown}</body></html>\n"
    )


def _panel(
    chart: Chart, devices: int, seconds: float, colours: dict[str, str], top: float
) -> list[str]:
    scale = (WIDTH - MARGIN_LEFT - MARGIN_RIGHT) / seconds
    lanes = top + TITLE
    bottom = lanes + devices * (LANE + GAP)
    parts = [f'<text class="title" x="8" y="{top + 22}">{escape(chart.title)}</text>']
    for device in range(devices):
        y = lanes + device * (LANE + GAP)
        parts.append(f'<text class="soft" x="8" y="{y + 20}">device {device}</text>')
        parts.append(
            f'<rect class="lane" x="{MARGIN_LEFT}" y="{y}" height="{LANE}"'
            f' width="{WIDTH - MARGIN_LEFT - MARGIN_RIGHT}" rx="3"/>'
        )
    for tick in ticks(seconds):
        x = MARGIN_LEFT + tick * scale
        parts.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{lanes}" y2="{bottom}"/>')
        parts.append(
            f'<text class="soft" x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{tick:g} s'
            "</text>"
        )
    rows = _rows(chart.bars)
    for bar in chart.bars:
        row, count = rows[bar]
        y = lanes + bar.device * (LANE + GAP) + row * LANE / count
        parts += _bar(bar, MARGIN_LEFT + bar.begin * scale, y, scale, LANE / count, colours)
    return parts


def _bar(
    bar: Bar, x: float, y: float, scale: float, height: float, colours: dict[str, str]
) -> list[str]:
    width = max(1.0, (bar.end - bar.begin) * scale)
    told = f"{bar.model}, {bar.kind}, {bar.begin:.1f} to {bar.end:.1f} s, {bar.text}"
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3"'
    parts = [f'<rect {box} fill="{colours[bar.model]}"><title>{escape(told)}</title></rect>']
    if bar.kind == "loading":
        parts.append(f"<rect {box} fill=\"url(#loading)\" pointer-events='none'/>")
    if bar.kind == "lost":
        parts.append(f'<rect {box} fill="none" stroke="#cf222e" stroke-width="3"/>')
    fits = len(bar.model) * MIN_LABEL_PIXELS_PER_CHARACTER < width and height > 12
    if bar.kind != "loading" and fits:
        parts.append(
            f'<text class="inside" x="{x + 6:.1f}" y="{y + height / 2 + 5:.1f}"'
            f" pointer-events='none'>{escape(bar.model)}</text>"
        )
    return parts


def _rows(bars: Sequence[Bar]) -> dict[Bar, tuple[int, int]]:
    """Return each bar's row and the number of rows of its device; models that share it differ."""
    rows: dict[Bar, int] = {}
    most: dict[int, int] = {}
    for bar in sorted(bars, key=lambda bar: bar.begin):
        taken = {
            row
            for other, row in rows.items()
            if other.device == bar.device and other.begin < bar.end and bar.begin < other.end
        }
        rows[bar] = next(row for row in range(len(rows) + 1) if row not in taken)
        most[bar.device] = max(most.get(bar.device, 0), rows[bar] + 1)
    return {bar: (row, most[bar.device]) for bar, row in rows.items()}


def _legend(colours: dict[str, str], top: float) -> list[str]:
    parts = []
    x = float(MARGIN_LEFT)
    for model, colour in colours.items():
        parts.append(
            f'<rect x="{x:.1f}" y="{top + 6}" width="12" height="12" fill="{colour}" rx="2"/>'
            f'<text x="{x + 17:.1f}" y="{top + 17}">{escape(model)}</text>'
        )
        x += 17 + len(model) * MIN_LABEL_PIXELS_PER_CHARACTER + 18
    parts.append(f'<text class="soft" x="{x:.1f}" y="{top + 17}">striped: loading</text>')
    return parts


def ticks(seconds: float) -> list[float]:
    """Return round numbers from 0 to at most `seconds`, at most about ten of them."""
    rough = seconds / MAX_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough)
    return [step * number for number in range(int(seconds / step + 1e-9) + 1)]
