// What others did while a request waited, and who of them held KV blocks: paused requests, or others.
import { ENDED, LOST, type Lane, WAITING, isPause } from "../model/lane";
import type { Trace } from "../model/trace";

/** Call `use` with each row that other requests than `request` had in [from, until), and its seconds therein.
 *
 * It walks over all lanes: for few requests only.
 */
export function eachOther(
  trace: Trace, request: string, from: number, until: number, use: (lane: Lane, row: number, seconds: number) => void,
): void {
  for (const lane of trace.partOf(request).lanes) {
    if (lane.id === request || !lane.length || lane.start >= until || lane.left <= from) continue;
    for (let row = Math.max(0, lane.rowAt(from)); row < lane.length && lane.at[row] < until; row++) {
      const seconds = Math.min(lane.until(row, until), until) - Math.max(lane.at[row], from);
      if (seconds > 0 && lane.kv[row] !== ENDED && lane.kv[row] !== LOST) use(lane, row, seconds);
    }
  }
}

/** Whether a request keeps device blocks from others in a row; what one in the queue has counts as nothing. */
export const holds = (lane: Lane, row: number): boolean => lane.kv[row] !== WAITING && lane.blocks[row] > 0;

/** How many requests held blocks at a time, on average and one at least, where any did. */
export interface Holders {
  paused: number;
  others: number;
  /** Block-seconds of the paused over all block-seconds; 0 where nobody held any. */
  pausedShare: number;
}

/** Return who held device blocks in [from, until) beside `request`. */
export function holdersOf(trace: Trace, request: string, from: number, until: number): Holders {
  const time = { paused: 0, others: 0 };
  const blockSeconds = { paused: 0, others: 0 };
  eachOther(trace, request, from, until, (lane, row, seconds) => {
    if (!holds(lane, row)) return;
    const kind = isPause(lane.kv[row]) ? "paused" : "others";
    time[kind] += seconds;
    blockSeconds[kind] += lane.blocks[row] * seconds;
  });
  const all = blockSeconds.paused + blockSeconds.others;
  return {
    paused: atATime(time.paused, until - from),
    others: atATime(time.others, until - from),
    pausedShare: all > 0 ? blockSeconds.paused / all : 0,
  };
}

const atATime = (seconds: number, length: number): number => (seconds > 0 ? Math.max(1, Math.round(seconds / length)) : 0);
