// Who holds blocks by the lanes: what the steps cannot say of times in which there is none.
import { above } from "../../model/columns";
import { ENDED, type Lane, WAITING, isActive, isPause } from "../../model/lane";
import type { Trace } from "../../model/trace";

/** Requests by what they do, and the blocks of those that wait for tools and of all others. */
export interface Held {
  active: number;
  paused: number;
  waiting: number;
  pausedBlocks: number;
  otherBlocks: number;
}

/** The requests' states summed up, after each change of any of them. */
export class Holders {
  readonly at: Float64Array;
  private readonly sums: Record<keyof Held, Int32Array>;

  constructor(trace: Trace) {
    const { count, at, lane, row } = changesOf(trace);
    const order = Uint32Array.from({ length: count }, (_, place) => place).sort((a, b) => at[a] - at[b]);
    this.at = Float64Array.from(order, (place) => at[place]);
    const column = (): Int32Array => new Int32Array(count);
    this.sums = { active: column(), paused: column(), waiting: column(), pausedBlocks: column(), otherBlocks: column() };
    const now: Held = { active: 0, paused: 0, waiting: 0, pausedBlocks: 0, otherBlocks: 0 };
    order.forEach((place, change) => {
      const changed = trace.lanes[lane[place]];
      if (row[place] > 0) add(now, changed, row[place] - 1, -1);
      add(now, changed, row[place], 1);
      for (const name of NAMES) this.sums[name][change] = now[name];
    });
  }

  /** The last change that is not after `time`; -1 before the first. */
  indexAt(time: number): number {
    return above(this.at, this.at.length, time) - 1;
  }

  /** What there is after a change. */
  after(change: number): Held {
    const { active, paused, waiting, pausedBlocks, otherBlocks } = this.sums;
    return {
      active: active[change], paused: paused[change], waiting: waiting[change],
      pausedBlocks: pausedBlocks[change], otherBlocks: otherBlocks[change],
    };
  }
}

const NAMES = ["active", "paused", "waiting", "pausedBlocks", "otherBlocks"] as const;
const known = new WeakMap<Trace, { rows: number; holders: Holders | null }>();

/** Return the holders of a trace; null where its lanes say nothing of blocks. */
export function holdersOf(trace: Trace): Holders | null {
  const kept = known.get(trace);
  if (kept?.rows === trace.intervals) return kept.holders;
  const told = trace.lanes.some((lane) => lane.blocks.some((blocks) => blocks > 0));
  const holders = told ? new Holders(trace) : null;
  known.set(trace, { rows: trace.intervals, holders });
  return holders;
}

/** All rows of all lanes, lane by lane. */
function changesOf(trace: Trace): { count: number; at: Float64Array; lane: Uint32Array; row: Uint32Array } {
  const count = trace.lanes.reduce((sum, one) => sum + one.length, 0);
  const at = new Float64Array(count);
  const lane = new Uint32Array(count);
  const row = new Uint32Array(count);
  let place = 0;
  trace.lanes.forEach((one, index) => {
    for (let i = 0; i < one.length; i++, place++) {
      at[place] = one.at[i];
      lane[place] = index;
      row[place] = i;
    }
  });
  return { count, at, lane, row };
}

function add(held: Held, lane: Lane, row: number, sign: 1 | -1): void {
  const state = lane.kv[row];
  if (state === ENDED) return;
  if (isActive(state)) held.active += sign;
  else if (state === WAITING) held.waiting += sign;
  else held.paused += sign;
  held[isPause(state) ? "pausedBlocks" : "otherBlocks"] += sign * lane.blocks[row];
}
