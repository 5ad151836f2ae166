// Who holds blocks by the lanes: what the steps cannot say of times in which there is none.
import { above, grown } from "../../model/columns";
import { ENDED, LOST, type Lane, WAITING, isActive, isPause } from "../../model/lane";
import type { Trace } from "../../model/trace";

/** Requests by what they do, and the blocks of those that wait for tools and of all others. */
export interface Held {
  active: number;
  paused: number;
  waiting: number;
  pausedBlocks: number;
  otherBlocks: number;
}

/** The requests' states summed up, after each change of any of them; it grows with the recording. */
export class Holders {
  /** When each change was; only the first `length` count. */
  at = new Float64Array(1024);
  length = 0;
  private readonly sums = { active: column(), paused: column(), waiting: column(), pausedBlocks: column(), otherBlocks: column() };
  private readonly now: Held = { active: 0, paused: 0, waiting: 0, pausedBlocks: 0, otherBlocks: 0 };
  /** By lane: how many of its rows are summed up, and when the last of them was. */
  private taken = new Int32Array(64);
  private last = new Float64Array(64);

  /** Sum up the rows that have come since; false where they do not come after all others. */
  grow(trace: Trace): boolean {
    const { count, at, lane, row } = this.rowsOf(trace);
    const order = Uint32Array.from({ length: count }, (_, place) => place).sort((a, b) => at[a] - at[b]);
    if (count && this.length && at[order[0]] < this.at[this.length - 1]) return false;
    this.reserve(this.length + count);
    for (const place of order) {
      const changed = trace.lanes[lane[place]];
      if (row[place] > 0) add(this.now, changed, row[place] - 1, -1);
      add(this.now, changed, row[place], 1);
      for (const name of NAMES) this.sums[name][this.length] = this.now[name];
      this.at[this.length] = at[place];
      this.length += 1;
    }
    return true;
  }

  /** The last change that is not after `time`; -1 before the first. */
  indexAt(time: number): number {
    return above(this.at, this.length, time) - 1;
  }

  /** What there is after a change. */
  after(change: number): Held {
    const { active, paused, waiting, pausedBlocks, otherBlocks } = this.sums;
    return {
      active: active[change], paused: paused[change], waiting: waiting[change],
      pausedBlocks: pausedBlocks[change], otherBlocks: otherBlocks[change],
    };
  }

  /** The rows of all lanes that are not summed up yet, lane by lane. A row that came late counts as before all others. */
  private rowsOf({ lanes }: Trace): { count: number; at: number[]; lane: number[]; row: number[] } {
    this.taken = grown(this.taken, lanes.length);
    this.last = grown(this.last, lanes.length);
    const [at, lane, row]: number[][] = [[], [], []];
    lanes.forEach((one, index) => {
      const before = this.taken[index];
      if (before === one.length) return;
      if (before && one.at[before - 1] !== this.last[index]) {
        at.push(-Infinity);
        lane.push(index);
        row.push(0);
      }
      for (let i = before; i < one.length; i++) {
        at.push(one.at[i]);
        lane.push(index);
        row.push(i);
      }
      this.taken[index] = one.length;
      this.last[index] = one.at[one.length - 1];
    });
    return { count: at.length, at, lane, row };
  }

  private reserve(length: number): void {
    this.at = grown(this.at, length);
    for (const name of NAMES) this.sums[name] = grown(this.sums[name], length);
  }
}

const column = (): Int32Array => new Int32Array(1024);
const NAMES = ["active", "paused", "waiting", "pausedBlocks", "otherBlocks"] as const;
const known = new WeakMap<Trace, { rows: number; told: boolean; holders: Holders }>();

/** Return the holders of a trace; null where its lanes say nothing of blocks. */
export function holdersOf(trace: Trace): Holders | null {
  let kept = known.get(trace);
  if (kept?.rows === trace.intervals) return kept.told ? kept.holders : null;
  const told = kept?.told || trace.lanes.some((lane) => lane.blocks.some((blocks) => blocks > 0));
  let holders = kept?.holders ?? new Holders();
  if (!holders.grow(trace)) {
    // Several engines' rows come in any order: sum up anew.
    holders = new Holders();
    holders.grow(trace);
  }
  known.set(trace, (kept = { rows: trace.intervals, told, holders }));
  return kept.told ? holders : null;
}

function add(held: Held, lane: Lane, row: number, sign: 1 | -1): void {
  const state = lane.kv[row];
  if (state === ENDED || state === LOST) return;
  if (isActive(state)) held.active += sign;
  else if (state === WAITING) held.waiting += sign;
  else held.paused += sign;
  held[isPause(state) ? "pausedBlocks" : "otherBlocks"] += sign * lane.blocks[row];
}
