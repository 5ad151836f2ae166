// Who held the KV blocks that a request waited for: how many paused requests, and how many others.
import { ENDED, WAITING, isPause } from "../model/lane";
import type { Trace } from "../model/trace";

/** Requests by whether they were paused for most of what they held, and the share of the paused ones. */
export interface Holders {
  paused: number;
  others: number;
  /** Block-seconds of the paused over all block-seconds; 0 where nobody held any. */
  pausedShare: number;
  /** The request that held most; "" if none did. */
  largest: string;
}

/** Return who held device blocks in [from, until) beside `request`. It walks over all lanes: for few requests only. */
export function holdersOf(trace: Trace, request: string, from: number, until: number): Holders {
  const found: Holders = { paused: 0, others: 0, pausedShare: 0, largest: "" };
  let most = 0;
  let inPause = 0;
  let all = 0;
  for (const lane of trace.lanes) {
    if (lane.id === request || !lane.length || lane.start >= until || (lane.end ?? Infinity) <= from) continue;
    let paused = 0;
    let other = 0;
    for (let row = Math.max(0, lane.rowAt(from)); row < lane.length && lane.at[row] < until; row++) {
      if (lane.kv[row] === ENDED || lane.kv[row] === WAITING) continue;
      const held = lane.blocks[row] * (Math.min(lane.until(row, until), until) - Math.max(lane.at[row], from));
      if (!(held > 0)) continue;
      if (isPause(lane.kv[row])) paused += held;
      else other += held;
    }
    if (paused + other <= 0) continue;
    found[paused > other ? "paused" : "others"] += 1;
    inPause += paused;
    all += paused + other;
    if (paused + other > most) [most, found.largest] = [paused + other, lane.id];
  }
  found.pausedShare = all > 0 ? inPause / all : 0;
  return found;
}
