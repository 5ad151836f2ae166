// Columns along a shared time axis, drawn by uPlot; pointing and zooming are their owner's.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { palette } from "../app/theme";
import { type Pattern, fill, property } from "./patterns";

/** One column. `colour` is the name of a CSS custom property. */
export interface Layer {
  name: string;
  values: ArrayLike<number | null>;
  colour: string;
  kind: "area" | "line";
  pattern?: Pattern;
  dash?: number[];
}

interface Props {
  /** Ascending positions on the drawn axis. */
  x: ArrayLike<number>;
  /** Drawn in this order. Of stacked areas the topmost comes first: each covers those behind it. */
  layers: readonly Layer[];
  /** The part of the axis that is shown. */
  from: number;
  to: number;
  /** Where vertical lines stand, and stretches in which time is folded. */
  ticks: readonly number[];
  folds: readonly { from: number; to: number }[];
  /** Stretches without an engine. */
  outages?: readonly { from: number; to: number }[];
  /** The top of the vertical axis at least. */
  top: number;
  format: (value: number) => string;
  label: string;
  width: number;
  height: number;
  /** The width of the vertical axis, in CSS pixels. */
  axis?: number;
}

/** Blocks, tokens and requests are counted, so ticks stand at whole numbers. */
const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat();

/** The usual width of the vertical axis, in CSS pixels. */
export const AXIS = 42;

/** Draw the columns as they were between two rows: each value holds until the next. */
export function TimeChart(props: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef(props);
  shown.current = props;
  const shape = props.layers.map((layer) => `${layer.name} ${layer.kind} ${layer.colour}`).join();
  const data = [props.x, ...props.layers.map((layer) => layer.values)] as uPlot.AlignedData;

  useEffect(() => {
    if (!frame.current) return;
    const made = new uPlot(options(shown), data, frame.current);
    plot.current = made;
    return () => made.destroy();
  }, [shape]);
  useEffect(() => {
    plot.current?.setSize({ width: props.width, height: props.height });
  }, [props.width, props.height]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [props.x, props.from, props.to, props.top, props.outages, palette.value, shape]);

  return (
    <div ref={frame} role="img" aria-label={props.label}
      style={{ width: `${props.width}px`, height: `${props.height}px` }} />
  );
}

function options(shown: { current: Props }): uPlot.Options {
  const { width, height, layers, axis = AXIS } = shown.current;
  const tick = () => property("--ink-3");
  const grid = { stroke: () => property("--line"), width: 1 };
  return {
    width, height,
    padding: [8, 0, 8, 0],
    cursor: { show: false },
    legend: { show: false },
    select: { show: false, left: 0, top: 0, width: 0, height: 0 },
    scales: {
      x: { time: false, range: () => [shown.current.from, shown.current.to] },
      y: { range: (_, __, most) => [0, Math.max(most || 0, shown.current.top) || 1] },
    },
    axes: [
      { size: 0, splits: () => [...shown.current.ticks], values: () => [], grid, ticks: { show: false } },
      {
        size: axis, stroke: tick, grid, ticks: { show: false }, gap: 6, space: 28, incrs: WHOLE,
        font: `11px ${property("--font")}`,
        values: (_, values) => values.map((value) => shown.current.format(value)),
      },
    ],
    hooks: { drawClear: [(plot) => drawFolds(plot, shown.current.folds), (plot) => drawOutages(plot, shown.current.outages ?? [])] },
    series: [{}, ...layers.map(series)],
  };
}

function series(layer: Layer): uPlot.Series {
  const colour = () => property(layer.colour);
  return {
    label: layer.name,
    points: { show: false },
    paths: uPlot.paths.stepped?.({ align: 1 }),
    width: layer.kind === "line" ? 1.5 : 0,
    stroke: colour,
    dash: layer.dash,
    fill: layer.kind === "area"
      ? (plot) => fill(plot.ctx, colour(), layer.pattern ?? "plain", property("--ink")) as string
      : undefined,
  };
}

function drawFolds(plot: uPlot, folds: Props["folds"]): void {
  const { left, top, width, height } = plot.bbox;
  plot.ctx.save();
  plot.ctx.beginPath();
  plot.ctx.rect(left, top, width, height);
  plot.ctx.clip();
  plot.ctx.fillStyle = property("--sunken");
  for (const fold of folds) {
    const from = plot.valToPos(fold.from, "x", true);
    plot.ctx.fillRect(from, top, plot.valToPos(fold.to, "x", true) - from, height);
  }
  plot.ctx.restore();
}

/** Hatched, so that they are told from folds without colour. */
function drawOutages(plot: uPlot, outages: NonNullable<Props["outages"]>): void {
  const { left, top, width, height } = plot.bbox;
  for (const outage of outages) {
    const from = plot.valToPos(outage.from, "x", true);
    const wide = Math.max(plot.valToPos(outage.to, "x", true) - from, 2);
    plot.ctx.save();
    plot.ctx.beginPath();
    plot.ctx.rect(left, top, width, height);
    plot.ctx.clip();
    plot.ctx.beginPath();
    plot.ctx.rect(from, top, wide, height);
    plot.ctx.clip();
    plot.ctx.globalAlpha = 0.3;
    plot.ctx.setLineDash([]);
    plot.ctx.lineWidth = devicePixelRatio;
    plot.ctx.strokeStyle = property("--bad");
    plot.ctx.beginPath();
    for (let x = from - height; x < from + wide; x += 9 * devicePixelRatio) {
      plot.ctx.moveTo(x, top + height);
      plot.ctx.lineTo(x + height, top);
    }
    plot.ctx.stroke();
    plot.ctx.restore();
  }
}
