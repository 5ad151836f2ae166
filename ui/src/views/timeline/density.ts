// How many requests are in which state on average, for each pixel.
import { ENDED, LOST, type Lane, STATES, WAITING, isPause } from "../../model/lane";
import type { Scale } from "../../model/timemap";

/** The overview's layers, from the bottom: what computes, what is paused, what waits; drawn in these states' colours. */
export const LAYERS = ["decode", "paused", "waiting"] as const;
const LAYER_OF = STATES.map((_, code) => (code === WAITING || code === LOST ? 2 : isPause(code) ? 1 : 0));

/** Mean number of requests by layer and pixel. */
export const density = (lanes: readonly Lane[], scale: Scale, now: number): Float64Array[] =>
  densityBy(lanes, scale, now, LAYER_OF, LAYERS.length);

/** Mean number of requests by layer and pixel; `layerOf` says in which of `layers` a state is counted. */
export function densityBy(
  lanes: readonly Lane[], scale: Scale, now: number, layerOf: readonly number[], layers: number,
): Float64Array[] {
  const width = Math.max(1, Math.floor(scale.width));
  // Whole pixels are counted as differences, so that a long state costs as much as a short one.
  const parts = Array.from({ length: layers }, () => new Float64Array(width + 2));
  const steps = Array.from({ length: layers }, () => new Float64Array(width + 2));
  for (const lane of lanes) {
    if (!lane.length || lane.start > scale.to || lane.left < scale.from) continue;
    // A window costs as much as the rows in it, however long the lane is.
    const first = Math.max(0, lane.rowAt(scale.from));
    let from = scale.x(lane.at[first]);
    for (let i = first; i < lane.length && lane.kv[i] !== ENDED && from < width; i++) {
      const to = scale.x(lane.until(i, now));
      const layer = layerOf[lane.state[i]];
      cover(parts[layer], steps[layer], Math.max(from, 0), Math.min(to, width));
      from = to;
    }
  }
  return parts.map((part, layer) => {
    let whole = 0;
    const sums = new Float64Array(width);
    for (let x = 0; x < width; x++) {
      whole += steps[layer][x];
      sums[x] = whole + part[x];
    }
    return sums;
  });
}

function cover(part: Float64Array, step: Float64Array, from: number, to: number): void {
  if (!(to > from)) return;
  const first = Math.floor(from);
  const last = Math.floor(to);
  if (first === last) {
    part[first] += to - from;
    return;
  }
  part[first] += first + 1 - from;
  part[last] += to - last;
  step[first + 1] += 1;
  step[last] -= 1;
}
