// All requests summed up: how many are in which state at each pixel, where rows would be lower than one.
import { count } from "../../format";
import { type Lane, STATES } from "../../model/lane";
import { densityBy } from "./density";
import { fontOf } from "./font";
import { AXIS, type Frame } from "./frame";
import { niceStep } from "./ticks";

/** From the bottom: what computes, what pauses, and what waits on top, where it is seen first. */
const STACK = ["decode", "prefill", "recompute", "loading", "paused", "offloaded", "dropped", "person", "lost", "waiting"] as const;
const CODES = STACK.map((name) => STATES.indexOf(name));
const LAYER_OF = STATES.map((_, code) => CODES.indexOf(code));
/** Room above the highest stack, in pixels. */
const HEAD = 14;

/** Sums are kept while a frame shows the same: the pointer's moves repaint often. */
let kept: { lanes: readonly Lane[]; rows: number; map: unknown; from: number; to: number; width: number; now: number; sums: Float64Array[] } | null = null;

/** Draw the requests as one stack of areas. */
export function paintSums(frame: Frame): void {
  const { context, colours, height } = frame;
  const sums = sumsOf(frame);
  const width = sums[0].length;
  const most = mostOf(sums);
  const unit = (height - AXIS - HEAD) / Math.max(most, 1);
  const base = new Float64Array(width).fill(height);
  CODES.forEach((code, layer) => {
    context.fillStyle = colours.fill[code];
    context.beginPath();
    for (let x = 0; x < width; x++) context.lineTo(x, base[x]);
    for (let x = width - 1; x >= 0; x--) context.lineTo(x, (base[x] -= sums[layer][x] * unit));
    context.fill();
  });
  paintLevels(frame, most, unit);
}

function sumsOf(frame: Frame): Float64Array[] {
  const { lanes, scale, now, trace } = frame;
  const same = kept && kept.lanes === lanes && kept.rows === trace.intervals && kept.map === scale.map && kept.from === scale.from
    && kept.to === scale.to && kept.width === scale.width && kept.now === now;
  if (!kept || !same) {
    const sums = densityBy(lanes, scale, now, LAYER_OF, STACK.length);
    kept = { lanes, rows: trace.intervals, map: scale.map, from: scale.from, to: scale.to, width: scale.width, now, sums };
  }
  return kept.sums;
}

function mostOf(sums: Float64Array[]): number {
  let most = 0;
  for (let x = 0; x < sums[0].length; x++) {
    let sum = 0;
    for (const layer of sums) sum += layer[x];
    most = Math.max(most, sum);
  }
  return most;
}

/** Lines at round numbers of requests. */
function paintLevels({ context, colours, height, scale }: Frame, most: number, unit: number): void {
  const step = Math.max(1, niceStep(most / 4));
  context.font = fontOf(10.5);
  context.textBaseline = "alphabetic";
  for (let level = step; level <= most; level += step) {
    const y = Math.round(height - level * unit);
    context.fillStyle = colours.ink3;
    context.globalAlpha = 0.35;
    context.fillRect(0, y, scale.width, 1);
    context.globalAlpha = 1;
    const text = `${count(level)} requests`;
    context.fillStyle = colours.panel;
    context.fillRect(2, y - 13, context.measureText(text).width + 6, 12);
    context.fillStyle = colours.ink2;
    context.fillText(text, 5, y - 3);
  }
}
