// What of a lane is drawn: stretches of one state, and what is narrower than a pixel put together.
import { above, grown } from "../../model/columns";
import { ENDED, type Lane } from "../../model/lane";
import type { Scale } from "../../model/timemap";

/** Stretches of one state in pixels; the arrays are used again for every lane. */
export class Segments {
  length = 0;
  from = new Float64Array(256);
  to = new Float64Array(256);
  state = new Uint8Array(256);
  /** The lane's row in which a stretch begins. */
  row = new Int32Array(256);

  push(from: number, to: number, state: number, row: number): void {
    const last = this.length - 1;
    if (last >= 0 && this.state[last] === state && this.to[last] >= from - 1e-6) {
      this.to[last] = Math.max(this.to[last], to);
      return;
    }
    this.length += 1;
    this.from = grown(this.from, this.length);
    this.to = grown(this.to, this.length);
    this.state = grown(this.state, this.length);
    this.row = grown(this.row, this.length);
    this.from[last + 1] = from;
    this.to[last + 1] = to;
    this.state[last + 1] = state;
    this.row[last + 1] = row;
  }
}

/** At most so many rows of a pixel are looked at: a lane with a million rows stays cheap. */
const MOST = 24;

/** Cut `lane` into stretches at least a pixel wide within the scale's window. */
export function segment(lane: Lane, scale: Scale, now: number, into: Segments): Segments {
  into.length = 0;
  let row = Math.max(0, lane.rowAt(scale.from));
  let from = Math.max(-2, scale.x(lane.at[row]));
  while (row < lane.length && from <= scale.width && lane.kv[row] !== ENDED) {
    const to = scale.x(lane.until(row, now));
    if (to - from >= 1) {
      into.push(from, Math.min(to, scale.width + 2), lane.state[row], row);
      row += 1;
      from = to;
      continue;
    }
    const edge = Math.floor(from) + 1;
    const behind = Math.max(row + 1, above(lane.at, lane.length, scale.time(edge)));
    into.push(from, edge, prevalent(lane, row, behind, now), row);
    if (scale.x(lane.until(behind - 1, now)) <= edge) {
      row = behind;
      from = behind < lane.length ? scale.x(lane.at[behind]) : edge;
    } else {
      row = behind - 1;
      from = edge;
    }
  }
  return into;
}

/** The state that holds longest in rows [first, behind). */
function prevalent(lane: Lane, first: number, behind: number, now: number): number {
  let best = lane.state[first];
  let most = -1;
  for (let i = first; i < Math.min(behind, first + MOST); i++) {
    const seconds = lane.until(i, now) - lane.at[i];
    if (seconds > most && lane.kv[i] !== ENDED) {
      most = seconds;
      best = lane.state[i];
    }
  }
  return best;
}
