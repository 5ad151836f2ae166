// Who held the KV blocks that a request waited for: how many paused requests, and how many others.
import { ENDED, WAITING, isPause } from "../model/lane";
import type { Trace } from "../model/trace";

/** How many requests held blocks at a time, on average and one at least, where any did. */
export interface Holders {
  paused: number;
  others: number;
  /** Block-seconds of the paused over all block-seconds; 0 where nobody held any. */
  pausedShare: number;
}

/** Return who held device blocks in [from, until) beside `request`. It walks over all lanes: for few requests only. */
export function holdersOf(trace: Trace, request: string, from: number, until: number): Holders {
  const found: Holders = { paused: 0, others: 0, pausedShare: 0 };
  let inPause = 0;
  let all = 0;
  for (const lane of trace.lanes) {
    if (lane.id === request || !lane.length || lane.start >= until || (lane.end ?? Infinity) <= from) continue;
    let paused = 0;
    let other = 0;
    const seconds = { paused: 0, others: 0 };
    for (let row = Math.max(0, lane.rowAt(from)); row < lane.length && lane.at[row] < until; row++) {
      if (lane.kv[row] === ENDED || lane.kv[row] === WAITING) continue;
      const time = Math.min(lane.until(row, until), until) - Math.max(lane.at[row], from);
      const held = lane.blocks[row] * time;
      if (!(held > 0)) continue;
      seconds[isPause(lane.kv[row]) ? "paused" : "others"] += time;
      if (isPause(lane.kv[row])) paused += held;
      else other += held;
    }
    if (paused + other <= 0) continue;
    found.paused += seconds.paused;
    found.others += seconds.others;
    inPause += paused;
    all += paused + other;
  }
  found.paused = atATime(found.paused, until - from);
  found.others = atATime(found.others, until - from);
  found.pausedShare = all > 0 ? inPause / all : 0;
  return found;
}

const atATime = (seconds: number, length: number): number => (seconds > 0 ? Math.max(1, Math.round(seconds / length)) : 0);
