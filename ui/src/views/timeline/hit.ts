// What is under the pointer.
import type { Lane } from "../../model/lane";
import type { Pause } from "../../model/pause";
import type { Scale } from "../../model/timemap";
import type { Trace } from "../../model/trace";
import { AXIS, GUTTER } from "./frame";
import { type LaneRow, within } from "./rows/layout";
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
  const lane = laneAt(row, x - GUTTER, scale);
  return lane && { x, y, time, lane, mark: x < GUTTER ? null : markAt(trace.pausesOf(lane.id), x - GUTTER, scale) };
}

/** The lane of a row, of a packed one that which is there or very near. */
function laneAt(row: LaneRow, x: number, scale: Scale): Lane | null {
  if (row.lanes.length === 1) return row.lanes[0];
  const [first, behind] = within(row, scale.time(x - NEAR), scale.time(x + NEAR));
  let best: Lane | null = null;
  let least = NEAR;
  for (let k = first; k < behind; k++) {
    const lane = row.lanes[k];
    const off = Math.max(scale.x(lane.start) - x, x - (lane.end === null ? Infinity : scale.x(lane.end)), 0);
    if (off < least) [best, least] = [lane, off];
  }
  return best;
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
