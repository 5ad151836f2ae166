// What is under the pointer.
import type { Pause } from "../../model/pause";
import type { Scale } from "../../model/timemap";
import type { Trace } from "../../model/trace";
import { AXIS, GUTTER } from "./frame";
import type { LaneRow } from "./rows";
import type { Hover } from "./store";

/** How near to a mark the pointer must be, in pixels. */
const NEAR = 7;

/** The lane, time and mark at a pixel of the canvas; null above and below the rows. */
export function hit(
  x: number, y: number, scroll: number, rowHeight: number, rows: readonly LaneRow[], trace: Trace, scale: Scale,
): Hover | null {
  if (y < AXIS) return null;
  const row = rows[Math.floor((y - AXIS + scroll) / rowHeight)];
  if (!row) return null;
  const time = scale.time(x - GUTTER);
  return { x, y, time, lane: row.lane, mark: x < GUTTER ? null : markAt(trace.pausesOf(row.lane.id), x - GUTTER, scale) };
}

function markAt(pauses: readonly Pause[], x: number, scale: Scale): Pause | null {
  let best: Pause | null = null;
  let least = NEAR;
  for (const pause of pauses) {
    const off = Math.abs(scale.x(pause.at) - x);
    if (off < least) [best, least] = [pause, off];
  }
  return best;
}

/** The pause of a lane that goes on at `time`. */
export function pauseDuring(pauses: readonly Pause[], time: number): Pause | null {
  let found: Pause | null = null;
  for (const pause of pauses) {
    if (pause.at > time) break;
    if (pause.seconds === null || pause.at + pause.seconds >= time) found = pause;
  }
  return found;
}
