// Pairs on two logarithmic axes of the same range, with the diagonal on which both are equal.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { palette } from "../app/theme";
import { logScale, type Scale } from "./scale";
import { useSize } from "./size";

interface Props {
  /** Positive values; a pair with another value is not drawn. */
  across: number[];
  up: number[];
  acrossName: string;
  upName: string;
  /** What the chart says, for those who do not see it. */
  label: string;
  format: (value: number) => string;
  describe: (point: number) => string;
  onPick: (point: number) => void;
  height?: number;
}

const LEFT = 66;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 34;
const REACH = 12;

/** Draw the pairs; the nearest to the pointer is described, and a click picks it. */
export function Scatter(props: Props) {
  const { across, up, label, describe, onPick, height = 280 } = props;
  const [frame, { width }] = useSize<HTMLDivElement>();
  const [near, setNear] = useState<number | null>(null);
  const axes = useMemo(() => scales(across, up, width, height), [across, up, width, height]);
  const place = useCallback(
    (point: number) => [axes.x.place(across[point]), axes.y.place(up[point])] as const, [axes, across, up],
  );
  const nearest = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return closest(across.length, place, event.clientX - box.left, event.clientY - box.top);
  };
  return (
    <div class="chart" ref={frame} style={{ height: `${height}px` }} role="img" aria-label={label}
      onMouseMove={(event) => setNear(nearest(event))} onMouseLeave={() => setNear(null)}
      onClick={(event) => {
        const point = nearest(event);
        if (point !== null) onPick(point);
      }}>
      {width > 0 && <Frame {...props} axes={axes} width={width} height={height} />}
      {width > 0 && <Dots count={across.length} place={place} width={width} height={height} />}
      {near !== null && <Near at={place(near)} text={describe(near)} width={width} />}
    </div>
  );
}

interface Axes {
  x: Scale;
  y: Scale;
  low: number;
  high: number;
}

function scales(across: number[], up: number[], width: number, height: number): Axes {
  let low = Infinity;
  let high = 0;
  for (const values of [across, up]) {
    for (const value of values) {
      if (!(value > 0)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  low = high ? low / 1.3 : 0.1;
  high = high ? high * 1.3 : 10;
  const x = logScale(low, high, LEFT, Math.max(LEFT + 1, width - RIGHT));
  return { x, y: logScale(low, high, height - BOTTOM, TOP), low, high };
}

function Frame({ axes, width, height, acrossName, upName, format }: Props & {
  axes: Axes; width: number; height: number;
}) {
  const { x, y, low, high } = axes;
  const floor = height - BOTTOM;
  const line = (factor: number) => ({
    x1: x.place(Math.max(low, low / factor)), y1: y.place(Math.max(low, low * factor)),
    x2: x.place(Math.min(high, high / factor)), y2: y.place(Math.min(high, high * factor)),
  });
  return (
    <svg width={width} height={height} aria-hidden="true">
      {y.ticks.map((tick) => (
        <g key={tick}>
          <line class="chart-grid" x1={LEFT} x2={width - RIGHT} y1={y.place(tick)} y2={y.place(tick)} />
          <text class="chart-tick" x={LEFT - 6} y={y.place(tick) + 4} text-anchor="end">{format(tick)}</text>
          <line class="chart-grid" x1={x.place(tick)} x2={x.place(tick)} y1={TOP} y2={floor} />
          <text class="chart-tick" x={x.place(tick)} y={floor + 15} text-anchor="middle">{format(tick)}</text>
        </g>
      ))}
      <line class="chart-diagonal" {...line(1)} />
      <line class="chart-twice" {...line(2)} />
      <line class="chart-twice" {...line(0.5)} />
      <text class="chart-name" x={(LEFT + width - RIGHT) / 2} y={height - 3} text-anchor="middle">{acrossName}</text>
      <text class="chart-name" transform={`translate(11 ${(TOP + floor) / 2}) rotate(-90)`}
        text-anchor="middle">{upName}</text>
    </svg>
  );
}

/** Thousands of dots are drawn on a canvas; as elements they would make the page slow. */
function Dots({ count, place, width, height }: {
  count: number; place: (point: number) => readonly [number, number]; width: number; height: number;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const pen = canvas.current?.getContext("2d");
    if (!pen) return;
    const ratio = window.devicePixelRatio || 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = getComputedStyle(pen.canvas).color;
    pen.globalAlpha = count > 2000 ? 0.25 : 0.6;
    for (let point = 0; point < count; point++) {
      const [x, y] = place(point);
      if (!Number.isFinite(x + y)) continue;
      pen.beginPath();
      pen.arc(x, y, count > 2000 ? 2 : 3, 0, 2 * Math.PI);
      pen.fill();
    }
  }, [count, place, width, height, palette.value]);
  const ratio = typeof window === "undefined" ? 1 : window.devicePixelRatio || 1;
  return (
    <canvas class="chart-dots" ref={canvas} aria-hidden="true" width={width * ratio}
      height={height * ratio} style={{ width: `${width}px`, height: `${height}px` }} />
  );
}

function Near({ at, text, width }: { at: readonly [number, number]; text: string; width: number }) {
  const [x, y] = at;
  const side = x > width / 2 ? { right: `${width - x + 8}px` } : { left: `${x + 8}px` };
  return (
    <>
      <span class="chart-ring" style={{ left: `${x - 5}px`, top: `${y - 5}px` }} />
      <span class="chart-tip" style={{ ...side, top: `${Math.max(0, y - 32)}px` }}>{text}</span>
    </>
  );
}

function closest(
  count: number, place: (point: number) => readonly [number, number], x: number, y: number,
): number | null {
  let found: number | null = null;
  let least = REACH * REACH;
  for (let point = 0; point < count; point++) {
    const [left, top] = place(point);
    const away = (left - x) ** 2 + (top - y) ** 2;
    if (away < least) {
      least = away;
      found = point;
    }
  }
  return found;
}
